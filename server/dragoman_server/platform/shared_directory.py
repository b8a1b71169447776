"""A directory that the processes of one gateway share, and that is removed even if they are killed."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_IN_MEMORY = "/dev/shm"


@contextmanager
def shared_directory(
    prefix: str, variable: str, files_of: Callable[[int], str]
) -> Iterator[Callable[[int], None]]:
    """Make a directory for this process and those that are started inside of this block.

    They find it in the environment variable. Only this user can enter it. Raises OSError if there is no place for it.
    Yield what to call with the id of a process that has ended: its files are removed.

    prefix: of its name. Directories with this prefix that gateways have left behind are removed.
    files_of: returns the pattern of the files of a process that are of no use without it.
    """
    before = os.environ.get(variable)
    # In memory where that is possible: a write to a mapped file on a full disk ends the process.
    in_memory = "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK)
    place = Path(_IN_MEMORY if in_memory else tempfile.gettempdir())
    _remove_left_behind(place, prefix)
    with _locked_directory(place, prefix) as directory:
        os.environ[variable] = str(directory)

        def remove_files(pid: int) -> None:
            for file in directory.glob(files_of(pid)):
                with suppress(OSError):
                    file.unlink()

        try:
            yield remove_files
        finally:
            del os.environ[variable]
            if before is not None:
                os.environ[variable] = before


@contextmanager
def _locked_directory(place: Path, prefix: str) -> Iterator[Path]:
    """Make a directory whose lock this process holds until it ends, however it does."""
    import fcntl

    with ExitStack() as stack:
        while True:
            directory = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
            with suppress(FileNotFoundError):
                descriptor = os.open(directory, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                with suppress(OSError):  # a file system without locks, of which nothing is removed
                    fcntl.flock(descriptor, fcntl.LOCK_SH)
            # Before it had the lock, another gateway that starts may have removed it.
            if directory.exists():
                break
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        yield directory


def _remove_left_behind(place: Path, prefix: str) -> None:
    """Remove the directories of gateways that were killed: this user's, if no process has locked them."""
    import fcntl

    for directory in place.glob(f"{prefix}*"):
        with suppress(OSError), ExitStack() as stack:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, descriptor)
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)
