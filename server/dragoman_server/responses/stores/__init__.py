"""Response stores: the interface in base; SQLite, in a file or in memory; and a Valkey server."""
