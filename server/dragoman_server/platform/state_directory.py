"""The directory in which a user's programs keep what outlives them and is no configuration."""

import sys
from collections.abc import Mapping
from pathlib import Path


def state_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the program's directory, which may not exist yet; None for a user without a home.

    A service of systemd with StateDirectory= has it in $STATE_DIRECTORY (systemd.exec(5)), and often no home. Linux:
    "$XDG_STATE_HOME defines the base directory relative to which user-specific state files should be stored"
    (XDG Base Directory Specification 0.8; relative paths in it are invalid). macOS and Windows have no such variable.
    """
    if service := environ.get("STATE_DIRECTORY"):
        return Path(service.partition(":")[0])
    try:
        home = Path.home()
    except RuntimeError:  # the user has no entry
        home = None
    if sys.platform == "win32":
        base = environ.get("LOCALAPPDATA")
        return Path(base, "dragoman") if base else None
    base = environ.get("XDG_STATE_HOME")
    if base and Path(base).is_absolute():
        return Path(base, "dragoman")
    if home is None or not home.is_absolute():
        return None
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".local/state") / "dragoman"
