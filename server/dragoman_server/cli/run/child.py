"""Run a command in the foreground: it shares this process's terminal and signals, and passes on its exit status.

On a terminal the command stays in this process's group, so that Ctrl-C, Ctrl-Z and pipelines work as without us: the
terminal sends their signals to the whole group. All other signals are passed on. Without a terminal the command has a
separate group, so that a signal to our group reaches it once. If this process is killed, Linux sends it SIGTERM.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from dragoman_server.serving.signals import has_terminal, signals_named

# A shell's exit codes.
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
# The exit code of a command that was ended because its terminal was closed.
HUNG_UP = 128 + 1


_PASSED_ON = signals_named("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
# The terminal sends them to all processes of its foreground group.
_FROM_KEYS = signals_named("SIGINT", "SIGQUIT")
# The signal that a process gets when its parent ends -- PR_SET_PDEATHSIG(2const)
_PR_SET_PDEATHSIG = 1
# `si_code` of a signal that no process has sent -- sigaction(2)
_SI_KERNEL = 0x80
# How often the child is looked at without a signal, because a thread of some library may have taken it.
_LOOK_S = 1.0


class CannotRun(Exception):
    """The command cannot be started.

    Attributes:
        status: The exit code for it.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def find_program(command: str) -> str:
    """Return the path of a command. Raises CannotRun."""
    found = shutil.which(command)
    if found is not None:
        return found
    if os.path.dirname(command) and os.path.exists(command):
        raise CannotRun(f"{command} is not an executable file", _NOT_EXECUTABLE)
    raise CannotRun(f"{command}: command not found", _NOT_FOUND)


def run_child(program: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end. Return its exit status, 128 + n if signal n ended it.

    Call it from the main thread, and without threads that could take a signal. Raises CannotRun.

    arguments: the first one is the program's name.
    """
    if os.name != "posix":
        raise CannotRun(
            "this needs POSIX signals: use --print-env, and start the gateway yourself", _NOT_EXECUTABLE
        )
    signals = {signal.SIGCHLD, *_PASSED_ON}
    # If it is ignored, which programs inherit, a child leaves no status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    own_group = not has_terminal()
    try:
        try:
            child = subprocess.Popen(
                arguments,
                executable=program,
                env=environ,
                close_fds=False,
                process_group=0 if own_group else None,
                preexec_fn=partial(_before_exec, _library(), os.getpid(), before),
            )
        except OSError as error:
            raise CannotRun(f"cannot run {program}: {error.strerror}", _NOT_EXECUTABLE) from None
        pid = child.pid
        while True:
            number, from_keys = _wait_for_signal(signals)
            if number != signal.SIGCHLD:
                if own_group or not from_keys:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            elif (status := _status(pid, stops_too=not own_group)) is not None:
                child.returncode = status  # nobody else looks for it
                return status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _library() -> ctypes.CDLL | None:
    """Return the C library where a process can ask for a signal when its parent ends."""
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def _before_exec(library: ctypes.CDLL | None, parent: int, signals: Iterable[int]) -> None:
    """Prepare the child, in its process. signals: to be blocked in it."""
    if library is not None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended before that
            os._exit(128 + signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)


def _status(pid: int, *, stops_too: bool) -> int | None:
    """Return the exit status of the child, None while it runs. If it was stopped, stop as well until `fg`."""
    found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    if not found:
        return None
    if os.WIFSTOPPED(status):
        if stops_too:
            # Programs that read single keys stop themselves at Ctrl-Z, and the shell waits for us.
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(pid, signal.SIGCONT)
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _wait_for_signal(signals: set[signal.Signals]) -> tuple[int, bool]:
    """Return the next signal, and true if a key on the terminal has sent it to the whole group."""
    if sys.platform == "darwin":
        # There is no sigtimedwait(). Keys reach only the foreground group.
        number = int(signal.sigwait(signals))
        return number, number in _FROM_KEYS and _is_foreground()
    info = signal.sigtimedwait(signals, _LOOK_S)
    if info is None:
        return signal.SIGCHLD, False
    return info.si_signo, info.si_signo in _FROM_KEYS and info.si_code == _SI_KERNEL


def _is_foreground() -> bool:
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
