"""The endpoints of clients and of the operator, the checks before them, and errors of all other paths.

It is large because the vendors' APIs have more than one path each: stored responses and their items, compaction, token
counts and lists of models, besides the operator's paths, and clouds have other paths for the same.

    endpoint          the base of all, and the endpoint that generates responses
    request           reads the path, the query and the body, within limits
    responses         the Responses API: stored responses and compaction
    background        begins responses in the background, and sends their events
    relayed           the endpoints of `relayed.table`: embeddings, images, audio, files, batches and more
    explanation       what would become of a request at any of these paths, for `dragoman explain` and the page
    cloud_paths       the paths at which clients that are set for a cloud call
    websocket         requests over a WebSocket
    client_messages   reads the messages of clients there; no I/O
    count_tokens      counts of input tokens
    models            lists of models
    usage             what a client key has used
    admin             all paths of the operator: /metrics, /ui and what is below /admin
    operations        what a path takes and answers, said where its route is made
    openapi           the description of all paths, made from that
    description_page  the page that shows it
    auth              client keys and the operator's key
    aws_signature     signatures of clients with keys of AWS
    browsers          requests of web pages that may not use the gateway
    errors            errors of paths where no endpoint responds
"""
