"""`dragoman doctor`: check the configuration, the gateway and its upstreams."""
