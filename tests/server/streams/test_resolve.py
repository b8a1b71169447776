"""Names to addresses: what waits for a name server, and what does not."""

import errno
import socket
import threading
from collections.abc import Iterator

import anyio
import pytest
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman_server.streams import resolve as module
from dragoman_server.streams.resolve import resolve

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP)]

V4, V6 = socket.AF_INET, socket.AF_INET6


class NameServer:
    """Answers at once, except for names that begin with "silent": those wait until the test ends.

    error: what it answers to all others.
    """

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.ended = threading.Event()
        self.error: int | None = None

    def getaddrinfo(self, name: bytes, port: None, **options: int) -> list[tuple[object, ...]]:
        self.asked.append(name)
        if self.error is not None:
            raise socket.gaierror(self.error, "an error")
        if name.startswith(b"silent"):
            self.ended.wait()
        if name.startswith((b"silent", b"unknown")):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(V6, 1, 6, "", ("::1", 0, 0, 0)), (V4, 1, 6, "", ("192.0.2.1", 0))]

    def never_answers(self, name: bytes, port: None, **options: int) -> list[tuple[object, ...]]:
        return self.getaddrinfo(b"silent " + name, port)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr("dragoman_server.streams.resolve.socket.getaddrinfo", server.getaddrinfo)
    yield server
    server.ended.set()


async def leaves(name: str) -> None:
    """Wait for a name, and give up at the first chance."""
    with anyio.move_on_after(0) as scope:
        await resolve(name)
    assert scope.cancelled_caught


async def test_a_literal_address_is_not_looked_up(server: NameServer) -> None:
    assert await resolve("127.0.0.1") == [(V4, "127.0.0.1")]
    assert await resolve("::1") == [(V6, "::1")]
    assert server.asked == []


async def test_a_name_is_looked_up_once_for_all_who_wait_and_kept(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[object] = []

    async def wait() -> None:
        results.append(await resolve("up.example"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(wait)
    assert results == [[(V6, "::1"), (V4, "192.0.2.1")]] * 5
    await resolve("up.example")
    assert server.asked == [b"up.example"]
    monkeypatch.setattr(module, "KEPT_S", -1.0)
    await resolve("other.example")
    await resolve("other.example")
    assert server.asked[1:] == [b"other.example"] * 2


async def test_an_unknown_name_is_an_error_for_each_and_not_kept(server: NameServer) -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(socket.gaierror) as raised:
            await resolve("unknown.example")
        errors.append(raised.value)
    assert errors[0] is not errors[1]
    assert len(server.asked) == 2


@pytest.mark.parametrize("error", [None, socket.EAI_AGAIN, socket.EAI_FAIL])
async def test_while_no_name_server_answers_the_last_addresses_are_used(
    error: int | None, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """error: that of the resolver, None while it waits."""
    monkeypatch.setattr(module, "KEPT_S", -1.0)
    found = await resolve("up.example")
    monkeypatch.setattr(module, "KEPT_S", 60.0)
    if error is None:
        monkeypatch.setattr(module, "PATIENCE_S", 0.05)
        monkeypatch.setattr("dragoman_server.streams.resolve.socket.getaddrinfo", server.never_answers)
    server.error = error
    asked = len(server.asked)
    assert [await resolve("up.example") for _ in range(3)] == [found] * 3
    assert len(server.asked) == asked + 1, "only the first one waits"


async def test_the_last_addresses_are_used_though_no_caller_waits_for_an_answer_that_long(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_S", -1.0)
    found = await resolve("up.example")
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    monkeypatch.setattr("dragoman_server.streams.resolve.socket.getaddrinfo", server.never_answers)
    results = []
    for _ in range(4):
        with anyio.move_on_after(0.05):
            results.append(await resolve("up.example"))
    assert results
    assert results[-1] == found


@pytest.mark.parametrize(("stale_s", "error"), [(0.0, socket.EAI_AGAIN), (60.0, socket.EAI_NONAME)])
async def test_addresses_that_are_too_old_or_that_a_name_server_denies_are_not_used(
    stale_s: float, error: int, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_S", -1.0)
    monkeypatch.setattr(module, "STALE_S", stale_s)
    await resolve("up.example")
    for server.error in (error, socket.EAI_AGAIN):
        with pytest.raises(socket.gaierror):
            await resolve("up.example")


async def test_a_name_that_is_unknown_for_want_of_descriptors(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted() -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("dragoman_server.streams.resolve.socket.socket", exhausted)
        with pytest.raises(OSError, match="Too many open files") as failed:
            await resolve("unknown.example")
    assert failed.value.errno == errno.EMFILE


async def test_a_silent_name_server_delays_its_own_names_only(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that leave keep no thread that others need, and a name has one thread however many wait for it."""
    monkeypatch.setattr(module, "MAX_LOOKUPS", 100)
    monkeypatch.setattr(module, "KEPT_S", 0.0)
    for _ in range(3):
        for number in range(99):
            await leaves(f"silent{number}.example")
    assert len(server.asked) == 99
    assert await resolve("up.example")
    await leaves("silent99.example")
    with pytest.raises(OSError, match="too many names are being looked up"):
        await resolve("more.example")
    assert await resolve("up.example"), "it has the addresses that it had last"
    assert await resolve("127.0.0.1")


async def test_the_oldest_name_goes_first(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    for name in ("a", "b", "c", "b", "a"):
        await resolve(name)
    assert server.asked == [b"a", b"b", b"c", b"a"]


async def test_no_thread_can_be_started(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("dragoman_server.streams.resolve.threading.Thread.start", start)
    with pytest.raises(OSError, match="can't start new thread"):
        await resolve("up.example")
