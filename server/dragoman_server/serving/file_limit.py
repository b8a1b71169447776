"""The number of files that the process may open, which limits its connections.

A request needs two: its client's connection, and in most cases one to its upstream. Systems start processes with a low
soft limit, often 1,024, because of select(), which cannot use more. No event loop here does, so the limit is raised.
"""

import logging
import sys
from contextlib import suppress

# Files of everything else: listener, event loop, stores, log.
_OTHERS = 64
_MAX_BY_DEFAULT = 10_000

_log = logging.getLogger("dragoman.server")


def raise_file_limit(max_connections: int) -> None:
    """Raise the soft limit to what the connections need, at most to the hard limit.

    max_connections: 0 for the default, which follows from the limit. If a number was configured, and more than the
    limit allows, there is a line in the log.
    """
    try:
        import resource
    except ImportError:  # not a Unix
        return
    needed = 2 * (max_connections or _MAX_BY_DEFAULT) + _OTHERS
    if _soft_limit() >= needed:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS allows fewer than its hard limit says.
    with suppress(ValueError, OSError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )
    files = _soft_limit()
    if max_connections and files < needed:
        _log.warning(
            "max_connections is %d, but the process may open only %d files, which is enough for %d connections with a "
            "request each: let it open %d (ulimit -n, LimitNOFILE of systemd, --ulimit nofile of docker)",
            max_connections,
            files,
            default_max_connections(),
            needed,
        )


def default_max_connections() -> int:
    """Return about half of the files that the process may open, 10,000 at most."""
    return max(16, min(_MAX_BY_DEFAULT, (_soft_limit() - _OTHERS) // 2))


def _soft_limit() -> int:
    """Return the limit, sys.maxsize if there is none."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files
