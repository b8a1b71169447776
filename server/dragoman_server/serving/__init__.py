"""Connections of clients: hypercorn's HTTP protocols on byte streams of our own, on asyncio, uvloop and trio alike.

`server` accepts, `connection` is one client connection, `http1` and `http2` are what is spoken on it, `tasks` what
hypercorn's classes want of an event loop, `lifespan` the application's start and end. Hypercorn is used for what it
knows of HTTP and ASGI; each place where we do otherwise names its file and line, of version 0.18.
"""
