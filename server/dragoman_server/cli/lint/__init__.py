"""`dragoman lint`: check recorded responses, a running server, or the prefixes of a session."""
