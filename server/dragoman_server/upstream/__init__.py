"""Requests to upstreams: the client, its transport for HTTP/1.1, and its errors."""
