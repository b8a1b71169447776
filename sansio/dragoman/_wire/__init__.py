"""Bytes to values and back: JSON with limits, server-sent events and other framings, errors, JSON Schema.

Streams are cut into whole frames here, and a model's name is replaced without changing another byte.
"""
