"""The Dragoman gateway: an ASGI application, and the `dragoman` command that serves it.

It has more lines than its budget (`make lines`), because most of them are features: a fifth is the command's, and
another fifth are connections of clients and upstreams, which keep what the servers and clients of libraries do not.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dragoman")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
