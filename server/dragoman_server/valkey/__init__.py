"""The connection to a Valkey or Redis server, for the stores on it."""
