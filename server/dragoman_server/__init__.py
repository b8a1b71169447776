"""The Dragoman gateway: an ASGI application, and the `dragoman` command that serves it.

It has more lines than its budget (`make lines`), because most of them are features: a fifth is the command's, and
another fifth are connections of clients and upstreams, which keep what the servers and clients of libraries do not.
"""

# As in pyproject.toml. To ask the installation takes a tenth of a start.
__version__ = "0.1.0"
