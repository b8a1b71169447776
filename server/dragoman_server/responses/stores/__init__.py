"""Response stores: the interface in base, and one module per place of the data (memory, SQLite, Valkey)."""
