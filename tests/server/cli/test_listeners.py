"""An address in use: who uses it, and what to do."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import ScriptedServer, answering
from virtual_time import REAL_BACKENDS

from dragoman_server.cli import listeners
from dragoman_server.cli.admin import AdminUnavailable, request_admin
from dragoman_server.cli.listeners import Listener, find_listener, free_port, startup_text
from dragoman_server.serving.sockets import AddressInUse, BoundAddress, StartupError, bind
from dragoman_server.settings import ServerSettings

needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")


def address(port: int, host: str = "127.0.0.1") -> BoundAddress:
    return BoundAddress("http", host, port, "asyncio")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def refused(server: ServerSettings) -> StartupError:
    with pytest.raises(StartupError) as raised:
        bind(server)
    return raised.value


@needs_proc
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_error_names_the_process_and_a_port_that_is_free(
    taken: int, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_HEALTHZ_S", 0.05)  # nobody accepts there
    text = startup_text(refused(ServerSettings(host=host, port=taken)))
    assert text.startswith(
        f"cannot listen on {host} port {taken}: Address already in use by process {os.getpid()} ("
    )
    assert ");" in text
    port = int(text.partition("start with --port ")[2].partition(",")[0])
    bind(ServerSettings(host=host, port=port)).close()
    assert text.endswith("or with --port 0 for any free port")


def test_without_proc_the_advice_is_the_same(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_HEALTHZ_S", 0.05)
    monkeypatch.setattr(listeners, "_sockets", lambda _: [])
    text = startup_text(refused(ServerSettings(port=taken)))
    command = f"lsof -nP -iTCP:{taken} -sTCP:LISTEN"
    assert f"Address already in use by another process (`{command}` shows it); start with --port " in text


def test_other_errors_have_their_own_advice() -> None:
    error = refused(ServerSettings(host="192.0.2.1", port=0))  # TEST-NET-1, which no machine has
    assert startup_text(error) == (
        "cannot listen on 192.0.2.1 port 0: Cannot assign requested address; choose an address of this machine: "
        "127.0.0.1, or 0.0.0.0 for all of them"
    )


RESPONSES = [
    (b'{"status":"ok","name":"dragoman"}', True),
    (b'{"status":"ok"}', False),
    (b"healthy", False),
]


@pytest.mark.anyio
@pytest.mark.backends(*REAL_BACKENDS)
@pytest.mark.parametrize(("body", "ours"), RESPONSES)
async def test_a_dragoman_is_found_by_healthz(body: bytes, ours: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with ScriptedServer(answering(head + body)) as server:
        listener = await find_listener(address(server.port))
    assert listener.url == (f"http://127.0.0.1:{server.port}" if ours else None)
    assert server.peers[0].requests[0].startswith(b"GET /healthz HTTP/1.1\r\n")


def test_a_dragoman_is_named_with_its_url() -> None:
    url = "http://127.0.0.1:8080"
    found = str(Listener(8080, "process 7 (dragoman serve)", url))
    assert found == "a Dragoman that serves http://127.0.0.1:8080, process 7 (dragoman serve)"
    assert str(Listener(8080, "", url)) == "a Dragoman that serves http://127.0.0.1:8080"


@needs_proc
def test_a_process_that_may_not_be_looked_at_has_its_user(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_HEALTHZ_S", 0.05)
    for uid, user in ((0, "root"), (2**31 - 7, str(2**31 - 7))):
        monkeypatch.setattr(listeners, "_sockets", lambda _, uid=uid: [(uid, "0")])  # the inode of no socket
        text = startup_text(refused(ServerSettings(port=taken)))
        assert f"Address already in use by a process of the user {user}; start with" in text


COMMANDS = [
    (b"/usr/bin/vllm\0serve\0qwen3\0--api-key\0sk-canary\0", "vllm serve qwen3"),
    (b"/usr/bin/python3\0-m\0http.server\x008000\0", "python3 -m http.server 8000"),
    (b"node\0\x1b[31m.js\0", "node ?[31m.js"),
    (b"", "kthread"),
]


@pytest.mark.promise("S3")
def test_options_of_a_command_may_be_keys_and_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "comm").write_text("kthread\n")
    for written, shown in COMMANDS:
        (tmp_path / "cmdline").write_bytes(written)
        assert listeners._command(tmp_path) == shown


def test_the_address_of_the_error_is_the_one_to_bind(taken: int) -> None:
    error = refused(ServerSettings(port=taken))
    assert isinstance(error, AddressInUse)
    assert error.address == address(taken)
    assert free_port(address(65_535)) is None


@pytest.mark.anyio
@pytest.mark.backends(REAL_BACKENDS[0])
@pytest.mark.parametrize(("status", "hint"), [(401, True), (404, False), (503, False)])
async def test_a_missing_admin_key_is_named_where_it_is_the_cause(status: int, hint: bool) -> None:
    body = b'{"error":{"message":"no"}}'
    response = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
    async with ScriptedServer(answering(response)) as server:
        with pytest.raises(AdminUnavailable, match=f"returned {status}: no") as raised:
            await request_admin(ServerSettings(port=server.port), "GET", "keys")
    assert ("DRAGOMAN_ADMIN_KEY" in str(raised.value), raised.value.status) == (hint, status)
