"""Recordings of requests: what the client and the upstreams sent, to see and repeat what happened."""
