"""Connections of clients: hypercorn's HTTP protocols on byte streams of our own, on asyncio, uvloop and trio alike.

Strategy: hypercorn's protocol classes translate between HTTP and ASGI; its servers, one for asyncio and one for trio,
are not used. Subclasses correct what goes wrong there, and each place names the file and line that it stands for.

    server      accepts connections, at most so many, and stops
    connection  one client connection: reads, writes, ends
    http1, http2              hypercorn's two protocols, corrected
    request_head              the rules for the head of an HTTP/1.1 request, before a parser sees it
    http2_connection          h2's connection, which here limits what a client may do; no I/O
    refusals    how the application answers what never becomes a request
    tasks       events, tasks and the application's queue, as hypercorn's classes want them
    lifespan    the application's start and end

A request: `server` accepts and makes a Connection, which reads bytes and gives them to HTTP1 or HTTP2. That starts the
application in a task and gives it the body through AppEvents. What the application sends comes back through
`stream_send`, is framed by h11 or h2, and goes out through `Connection.send`.

A refused request: HTTP1 or HTTP2 finds the head wrong, or late, and `WorkerContext.refusal` makes the answer, in the
form of the path's protocol. It is sent like any other; over HTTP/1.1 the connection ends then.
"""
