"""`dragoman doctor`: check the configuration, the gateway and its upstreams.

It is the largest command, because each problem has its text and its fix, and a wrong base URL, key or protocol shows
itself in many ways.
"""
