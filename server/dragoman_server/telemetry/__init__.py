"""Report what happens to requests: metrics for Prometheus, traces and metrics for OpenTelemetry.

Both are made from the record of a request that the log line is made of, once it has ended; nothing is done per event.

It is large because the two have their own names, units and labels, and because several workers must count together.
"""
