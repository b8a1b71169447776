"""`dragoman replay`: repeat a recorded exchange, and reduce it to what matters."""
