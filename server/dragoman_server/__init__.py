"""The Dragoman gateway."""
