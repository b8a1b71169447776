"""Byte streams on asyncio and trio behind one interface, for connections to upstreams and of clients.

It is large because anyio's stream costs too much for each event (see byte_stream), and because names and bodies need
limits of time and strictness that the standard library and h11 do not have.
"""
