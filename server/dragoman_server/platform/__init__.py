"""What the gateway needs of the event loop, threads and files; it knows no request."""
