"""Requests to upstreams: the client, its transport for HTTP/1.1, and its errors.

It is large because it has its own HTTP/1.1 connections and pool: httpx2's cost more CPU for each event of a stream than
the translation, and send a request again by themselves (docs/decisions/3-transport.md).
"""
