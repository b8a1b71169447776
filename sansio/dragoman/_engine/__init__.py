"""The machines that callers use: RequestTranslator, ResponseTranslator, Relay, FanOut, EventReader and EventWriter.

Heartbeats and estimates of tokens are here as well.
"""
