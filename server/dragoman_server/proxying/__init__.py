"""One request from its plan to its end. Start with client_request, plan and attempt, then request_handler.

It is large because nothing is sent before there is content. Until then a failure may be followed by a resend, the same
request without what was refused, another account or another upstream, also in parallel (hedges); several choices may be
several requests; and a client that leaves ends all of it.

    client_request   the client's side: what it sent, and the channel of its response
    plan             everything that will be sent, before anything is; no I/O
    relayed_plan     the same for the endpoints of `relayed.table`
    destinations     where the requests for a model go
    betas            which betas an upstream gets
    affinity         the key of a conversation, and the ids of files and other objects that it refers to
    explanation      what would happen to a request with a plan, for `http.explanation`
    request_handler  the scope of a request and its tasks: leaving, hedges
    account_pool     the account of each attempt, and what its outcome means for it
    attempt          one request to one upstream, and its response
    response_reads   what an attempt knows about a read before it is translated
    loss_policy      what happens to a request that would lose something
    refused_members  members that upstreams have refused by name
    tool_grammar     checks of a model's input for free-text tools
    client_stream    a stream on its way to the client: its writer and its heartbeats
    outbox           the bytes of that stream
    upstream_errors  a failed attempt, and which text of it the client gets
    upload           a body on its way to the upstream while it arrives
    records          puts what became of a request into its record
"""
