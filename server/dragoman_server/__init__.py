"""The Dragoman gateway: an ASGI application, and the `dragoman` command that serves it."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dragoman")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0"
