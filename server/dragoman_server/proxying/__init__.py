"""One request from its plan to its end. Start with client_request, plan and attempt, then request_handler.

It is large because nothing is sent before there is content. Until then a failure may be followed by a resend, the same
request without what was refused, another account or another upstream, also in parallel (hedges); several choices may be
several requests; and a client that leaves ends all of it.
"""
