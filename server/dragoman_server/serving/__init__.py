"""Serve the connections of clients: HTTP on our byte streams, on asyncio, uvloop and trio.

HTTP/1.1 and WebSocket are read and written here, HTTP/2 by h2. This package is large because hypercorn's servers, one
for asyncio and one for trio, and its protocol classes do not keep what the gateway promises about clients that leave,
attack or do not read (docs/decisions/4-hypercorn.md).

    run               serve(): one process or several, signals, the steps of a stop
    supervisor        several worker processes on one listening socket
    link              the messages between the supervisor and its workers
    exit_timer        ends a process that does not end by itself
    signals           which signals stop the gateway, and which one reloads its configuration
    sockets           the listening socket
    tls               the certificates
    file_limit        raises the number of files that the process may open
    server            accepts connections up to a limit, and stops
    connection        one client connection: reads, writes, ends
    http1, http2      HTTP on one connection
    http1_response    the bytes of an HTTP/1.1 response
    request_head      the rules for the head of an HTTP/1.1 request, before a parser reads it
    http2_connection  h2's connection with limits on what a client may do; no I/O
    frame_rate        limits on frames that cost work and have little content; no I/O
    asgi_stream       one request of either version, between its protocol and ASGI
    websocket         a WebSocket over either version of HTTP, between its frames and ASGI
    websocket_frames  reads and writes its frames, permessage-deflate included; no I/O
    websocket_handshake  which requests open a WebSocket, and their responses; no I/O
    unsent            bounds the large bodies that clients have not read
    refusals          responses to requests that the application never receives
    tasks             runs the application for one request, with the queue of what it receives
    lifespan          the application's start and end

A request: `server` accepts a socket and creates a Connection, which passes the bytes to HTTP1 or HTTP2. That starts the
application in a task, by an HTTPStream, and passes it the body through AppEvents. What the application sends goes from
the stream to HTTP1 or HTTP2, which frames it, and is written by `Connection.write`.

A refused request: HTTP1 or HTTP2 finds that the head is wrong, or late, and `refusals` makes the response, in the form
of the path's protocol. It is sent like any other; over HTTP/1.1 the connection ends then.
"""
