"""The HTTP vocabulary of both sides: headers, whole responses, addresses of clients."""
