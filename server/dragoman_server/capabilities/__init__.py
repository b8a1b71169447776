"""Tables of what well-known hosts and model families accept, and `resolve`, which combines them with the settings.

Two lines in three are rows of the tables, which have what servers and models document, or refuse.
"""
