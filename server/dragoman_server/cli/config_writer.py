"""Write the configuration file: in one step, and while no other command changes it."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# Seconds to wait for another command that changes the file, which takes it a fraction of one.
LOCK_S = 10.0


class ConfigEditError(Exception):
    """The file cannot be changed; the text has the reason and what to do by hand."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let no other command change the file inside of this block, which reads it and then replaces it.

    Raises ConfigEditError if another one is at it for longer than LOCK_S.
    """
    try:
        import fcntl
    except ImportError:  # not a Unix
        yield
        return
    with ExitStack() as stack:
        with suppress(OSError):  # no such directory, or a file system without locks
            # The directory, because the file is replaced.
            directory = os.open(path.resolve().parent, os.O_RDONLY)
            stack.callback(os.close, directory)
            deadline = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise ConfigEditError(f"another command is changing {path}: try again") from None
                    time.sleep(0.02)
        yield


def replace_file(
    path: Path, data: bytes, *, like: Path | None = None, check: Callable[[Path], None] = lambda path: None
) -> None:
    """Write or replace a file in one step: a half-written one would keep the gateway from starting.

    It keeps its owner, or gets the one of `like` if it is new: otherwise root would take it from the user that the
    gateway runs as. Its mode is the same or the other file's, or else private. After the call the new file is on the
    disk, whatever happens to the machine.

    check: called with the path of a file that has the data, before anything changes. Nothing changes if it raises.

    Raises ConfigEditError.
    """
    path = path.resolve()
    try:
        before = next((known.stat() for known in (path, like) if known is not None and known.exists()), None)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            written = Path(file.name)
            try:
                file.write(data)
                file.flush()
                made = os.fstat(file.fileno())
                if before and (before.st_uid, before.st_gid) != (made.st_uid, made.st_gid):
                    os.chown(written, before.st_uid, before.st_gid)
                written.chmod(0o600 if before is None or like is None else before.st_mode)
                os.fsync(file.fileno())
                check(written)
                written.replace(path)
            finally:
                written.unlink(missing_ok=True)
        _sync_directory(path.parent)
    except OSError as error:
        raise ConfigEditError(f"cannot write {path}: {error.strerror}") from None


def _sync_directory(directory: Path) -> None:
    """Have the names of files written to the disk. The file is in place already, so nothing is raised."""
    with suppress(OSError):  # not every file system can
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
