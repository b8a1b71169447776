"""`dragoman run`: start a coding agent with a gateway."""
