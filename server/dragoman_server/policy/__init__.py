"""Which account a request is tried with, and what an error means for it: pure machines, without I/O or a clock."""
