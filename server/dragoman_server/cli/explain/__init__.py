"""`dragoman explain`: what the gateway would do with a request."""
