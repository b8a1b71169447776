"""What well-known hosts and model families accept, as tables, and `resolve`, which combines them with the settings."""
