"""Response stores: the interface in base, in memory, and in a SQLite file."""
