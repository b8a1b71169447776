"""What requests have used, by hour: counted in memory, written about each second, read by operators and client keys."""
