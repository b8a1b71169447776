"""The endpoints. endpoint is the base of all; auth, browsers and errors are for requests that reach no endpoint.

It is large because the vendors' APIs have more than one path each: stored responses and their items, compaction, token
counts and lists of models, besides the operator's paths.
"""
