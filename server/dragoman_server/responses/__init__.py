"""Stored responses, and those that are made in the background.

The gateway stores them itself, so upstreams of every protocol can continue them.

    service       what the endpoints call: expands references to stored responses, and stores new ones
    conversation  rewrites a request that refers to a stored conversation; no I/O
    stores        where responses and the logs of their events are: in memory, a SQLite file, a Valkey server
    recent        the newest responses of one WebSocket, which it can continue without a store
    background    makes a response while its client may be gone, with a log of its events
    followers     sends the events of a log to clients
    reasoning     keeps reasoning for Chat clients, which do not send it back
"""
