"""`dragoman doctor`: check the configuration, the gateway and its upstreams.

It is the largest command, because each problem has its text and its fix, and a wrong base URL, key or protocol shows
itself in many ways.

    command          prints the findings; the options
    offline          what needs no network: the configuration, files, this machine
    online           the port, the stores, the clock, and all upstreams in parallel
    upstreams        one upstream: its protocols, its models with each account, one tiny response
    endpoint_paths   which protocols an upstream serves, and where
    exchange         sends a request as the gateway does, and keeps what came of it
    failures         what a failure means, and how to fix it; no I/O
    context_windows  models whose context window is too small for coding agents; no I/O
"""
