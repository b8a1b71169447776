"""The `dragoman` command, also `python -m dragoman_server`.

An installation without the extra `server` has the command too, but not the packages that it needs: then it names the
extra.
"""

import errno
import gc
import io
import os
import sys


def main() -> None:
    """Run the command. Exit with 1 if a package of the extra is missing or a disk is full, with 130 at Ctrl-C."""
    # Imports make hardly any garbage, and each collection looks at all that they have loaded. serve() enables it again;
    # the other commands end soon.
    gc.disable()
    _prepare_standard_streams()
    try:
        from dragoman_server.cli.commands import main as run

        run(prog_name="dragoman")
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as a shell reports it; it came during the imports
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(f"dragoman: {error}")  # stdout is such a file, say
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("dragoman", "dragoman_server"):
            raise  # a bug of ours
        sys.exit(
            f"dragoman: {error.name} is not installed: this is the library without the gateway. "
            "Install it with its extra `server`, from a clone with: pip install '.[server]'"
        )


def _prepare_standard_streams() -> None:
    """Open /dev/null for those that the command was started without, as with `2>&-`. Let stdout take any text.

    Python has None for those, and the next files and sockets would get their numbers.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As stderr, for half a surrogate pair and in the locale C.
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
