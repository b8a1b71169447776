"""Byte streams on asyncio and trio behind one interface, for connections to upstreams and of clients."""
