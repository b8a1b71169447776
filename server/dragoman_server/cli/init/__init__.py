"""`dragoman init`: write a first configuration."""
