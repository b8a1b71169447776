"""Account stores: the interface in base, one module per place of the data, and resilient around those that may fail.

They are large because the same steps exist twice, in Python for memory and a file and in Lua for a server, and because
no request may wait for a store that is slow or down.
"""
