"""What requests have used, by hour: counted in memory, written twice a second, read by operators and client keys."""
