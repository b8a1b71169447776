"""Tables of what well-known hosts and model families accept, and `resolve`, which combines them with the settings."""
