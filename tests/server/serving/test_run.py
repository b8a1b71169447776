"""The runner, in real processes: it starts, prints its address, serves, drains and exits.

A test runs on each backend where the event loop decides: at the start, for signals, for what is cut. Else LOOPS or one
of them is enough; the steps of a stop are in test_run_on_trio.py, in virtual time.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from command.process import Server
from http_certificate import Certificate

from dragoman_server.serving.run import BoundAddress, StartupError, serve
from dragoman_server.serving.sockets import bind
from dragoman_server.serving.tls import check_tls
from dragoman_server.settings import ServerSettings, Settings

pytestmark = pytest.mark.process

on_each_backend = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
on_each_loop = pytest.mark.parametrize("backend", ["asyncio", "trio"])
on_each_asyncio = pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
each_worker_count = pytest.mark.parametrize("workers", ["1", "2"])


@pytest.mark.parametrize(
    ("backend", "number"), [("asyncio", signal.SIGTERM), ("uvloop", signal.SIGTERM), ("trio", signal.SIGINT)]
)
def test_it_prints_its_address_and_serves_there_and_exits_with_0(
    backend: str, number: signal.Signals
) -> None:
    with Server("--port", "0", "--backend", backend).ready() as server:
        assert server.backend == backend
        assert server.port > 0
        assert server.get("/") == b"hello"
        assert json.loads(server.get("/info")) == ["1.1", "http"]
        with server.connect() as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert b"server:" not in server.read_to_end(client).lower()
        server.signal(number)
        assert server.wait() == 0
    # The line comes once; after it come the application's own and those of the stop, and no noise of the server's.
    expected = [f"Dragoman listens on http://127.0.0.1:{server.port} ({backend})"]
    assert [line for line in server.output if "listens" in line] == expected
    listens, stop, shut_down, stopped = server.output[-4:]
    assert listens.startswith("Dragoman listens")
    assert json.loads(stop)["message"] == f"{number.name}: no new connections; no request is open"
    assert shut_down == "the application has shut down"
    assert json.loads(stopped)["message"] == "stopped"


@each_worker_count
@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.skipif(sys.platform != "linux", reason="systemd and abstract sockets are Linux's")
@pytest.mark.each_choice
def test_systemd_is_notified_once_it_serves(workers: str, abstract: bool, tmp_path: Path) -> None:
    name = f"dragoman-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else name)
        manager.settimeout(60)
        environ = {"NOTIFY_SOCKET": f"@{name}" if abstract else name}
        with Server("--port", "0", "--workers", workers, env=environ) as server:
            assert manager.recv(100) == b"READY=1"
            assert server.ready().get("/") == b"hello"


@each_worker_count
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_it_serves_although_it_is_started_without_standard_streams(workers: str, tmp_path: Path) -> None:
    closed = ("sh", "-c", 'exec "$0" -m dragoman_server serve "$@" 0<&- 1>&- 2>&-', sys.executable)
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(60)
        arguments = ("--port", "0", "--workers", workers, "--usage-store", "memory")
        with Server(*arguments, env={"NOTIFY_SOCKET": name}, command=closed) as server:
            assert manager.recv(100) == b"READY=1"
            # A socket that got one of these numbers would get what libraries print.
            streams = [os.readlink(f"/proc/{server.pid}/fd/{number}") for number in range(3)]
            assert streams == ["/dev/null"] * 3
            server.signal(signal.SIGTERM)
            assert server.wait() == 0


@on_each_asyncio
@pytest.mark.promise("R2")
def test_an_open_response_after_the_drain_is_cut_without_an_end(backend: str) -> None:
    arguments = ("--port", "0", "--backend", backend, "--drain-s", "0.2")
    with Server(*arguments).ready() as server, server.connect() as client:
        client.sendall(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n")
        reply = b""
        while b"begin" not in reply:
            reply += client.recv(65536)
        started = time.monotonic()
        server.signal(signal.SIGTERM)
        reply += server.read_to_end(client)
        # A chunked response ends with an empty chunk. This one was cut, and the client must be able to see that.
        assert not reply.endswith(b"0\r\n\r\n")
        assert server.wait() == 0
        # Less than the drain time is by default.
        assert time.monotonic() - started < 25
    *_, stop, cut, shut_down, stopped = server.output
    assert "SIGTERM: no new connections, and up to 0.2 s for open requests: 1" in stop
    assert "requests cancelled because they were still open: 1" in cut
    assert shut_down == "the application has shut down"
    assert "stopped" in stopped


@on_each_backend
def test_a_second_signal_does_not_wait_even_for_a_client_that_does_not_read(backend: str) -> None:
    with Server("--port", "0", "--backend", backend).ready() as server, server.connect() as client:
        client.sendall(b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n")
        assert client.recv(1)
        server.signal(signal.SIGTERM)
        server.wait_until_closed()
        started = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        # The drain time is 30 seconds.
        assert time.monotonic() - started < 25


@pytest.mark.promise("S8")
@on_each_loop
def test_code_that_blocks_the_event_loop_does_not_keep_the_process(backend: str) -> None:
    arguments = ("--port", "0", "--backend", backend, "--drain-s", "0.2")
    with Server(*arguments, env={"CFG_STEP_S": "0.1"}).ready() as server, server.connect() as client:
        client.sendall(b"GET /block HTTP/1.1\r\nhost: a\r\n\r\n")
        while b"begin" not in client.recv(65536):
            pass
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert "the stop takes too long" in server.output[-1]


@each_worker_count
@on_each_loop
@pytest.mark.each_choice
def test_a_thread_that_hangs_does_not_keep_the_process(backend: str, workers: str) -> None:
    """The interpreter waits for threads at its end: for one that reads a file system that hangs, say."""
    # No request is open, so nothing waits for the end of the drain.
    arguments = ("--port", "0", "--backend", backend, "--workers", workers, "--drain-s", "3600")
    with Server(*arguments, env={"CFG_STEP_S": "0.1"}).ready() as server:
        assert server.get("/thread") == b"hangs"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert any("the stop takes too long" in line for line in server.output)


@each_worker_count
@on_each_loop
@pytest.mark.each_choice
def test_a_log_that_nobody_reads_does_not_keep_the_process(backend: str, workers: str) -> None:
    arguments = ("--port", "0", "--backend", backend, "--workers", workers, "--drain-s", "0.2")
    with Server(*arguments, env={"CFG_STEP_S": "0.1"}).ready() as server:
        server.stop_reading()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


@each_worker_count
def test_a_closed_terminal_drains_too(workers: str) -> None:
    ours, its_terminal = os.openpty()
    server = Server("--port", "0", "--workers", workers, terminal=its_terminal)
    os.close(its_terminal)
    with server.ready(), server.connect() as client:
        client.sendall(b"POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab")
        assert server.get("/") == b"hello"
        server.signal(signal.SIGHUP)
        server.wait_for_line("the configuration was reloaded")
        os.close(ours)
        server.wait_until_closed()
        client.sendall(b"cd")
        assert b"abcd" in server.read_to_end(client)
        assert server.wait() == 0


@on_each_loop
def test_a_signal_ends_a_start_that_hangs(backend: str) -> None:
    with Server("--port", "0", "--backend", backend, env={"CFG_HANG": "1"}) as server:
        server.wait_for_line("hanging")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert not any("listens" in line for line in server.output)


@on_each_loop
@each_worker_count
@pytest.mark.each_choice
def test_an_application_that_does_not_start_is_one_line(backend: str, workers: str) -> None:
    environ = {"CFG_FAIL": "no database"}
    with Server("--port", "0", "--backend", backend, "--workers", workers, env=environ) as server:
        assert server.wait() == 1
    assert server.output == ["dragoman: the application did not start: OSError: no database"]


def test_ipv6() -> None:
    if not socket.has_ipv6 or not _can_bind("::1"):
        pytest.skip("this machine has no IPv6")
    with Server("--host", "::1", "--port", "0").ready() as server:
        assert f"Dragoman listens on http://[::1]:{server.port} (asyncio)" in server.output
        with socket.create_connection(("::1", server.port)) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"


def _can_bind(host: str) -> bool:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


# TLS.


@pytest.mark.parametrize(
    ("backend", "flags", "version"),
    [("asyncio", [], "2"), ("uvloop", ["--no-http2"], "1.1"), ("trio", [], "2")],
)
def test_tls_offers_http_2(backend: str, flags: list[str], version: str, certificate: Certificate) -> None:
    files = ("--certfile", str(certificate.cert), "--keyfile", str(certificate.key))
    with Server("--port", "0", "--backend", backend, *files, *flags).ready() as server:
        assert f"Dragoman listens on https://127.0.0.1:{server.port} ({backend})" in server.output
        with httpx2.Client(verify=certificate.client(), http2=True) as client:
            response = client.get(f"https://127.0.0.1:{server.port}/info")
        assert response.json() == [version, "https"]
        # Plain HTTP on the TLS port is the client's mistake and no line in the log.
        with server.connect() as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                plain.recv(1)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert server.output[-4].startswith("Dragoman listens")


def test_a_key_that_cannot_be_used_is_refused_without_a_prompt(
    certificate: Certificate, tmp_path: Path
) -> None:
    certfile, locked = str(certificate.cert), str(tmp_path / "locked.pem")
    command = [
        "openssl",
        "ec",
        "-in",
        str(certificate.key),
        "-out",
        locked,
        "-aes256",
        "-passout",
        "pass:secret",
    ]
    subprocess.run(command, check=True, capture_output=True)
    for keyfile in (certfile, locked):
        text = f"certfile {certfile} and keyfile {keyfile} cannot be used together: "
        with pytest.raises(StartupError, match=f"^{re.escape(text)}"):
            check_tls(ServerSettings(certfile=certfile, keyfile=keyfile))
    for upstream_certfile in (certfile, locked, str(tmp_path / "none.pem")):
        with pytest.raises(StartupError, match=r"^the upstream_certfile /\S+ is no certificate with its key"):
            check_tls(ServerSettings(upstream_certfile=upstream_certfile))


# Workers.


def _pids(server: Server, count: int) -> set[int]:
    """Return the processes that respond. The kernel chooses which one accepts, so this requests until all have."""
    found: set[int] = set()
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found.add(int(server.get("/pid")))
    return found


@on_each_backend
def test_workers_share_one_port_and_a_signal_to_their_group_is_one_for_each(backend: str) -> None:
    arguments = ("--port", "0", "--backend", backend, "--workers", "2")
    with Server(*arguments).ready() as server, server.connect() as client:
        client.sendall(b"POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab")
        pids = _pids(server, 2)
        assert len(pids - {server.pid}) == 2
        os.killpg(server.pid, signal.SIGINT)
        server.wait_until_closed()
        # A second signal would have cut this request.
        client.sendall(b"cd")
        assert b"abcd" in server.read_to_end(client)
        assert server.wait() == 0
    assert sum("listens" in line for line in server.output) == 1
    assert server.output.count("the application has shut down") == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_worker_that_dies_is_replaced() -> None:
    with Server("--port", "0", "--workers", "2", env={"CFG_STEP_S": "0.1"}).ready() as server:
        before = _pids(server, 2)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        server.wait_for_line(r"worker \d ended by SIGKILL; starting another")
        after = set[int]()
        deadline = time.monotonic() + 30
        while len(after - before) < 1 and time.monotonic() < deadline:
            after |= {int(server.get("/pid"))}
        assert victim not in after
        assert len(after - before) == 1
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert sum("listens" in line for line in server.output) == 1


def test_a_worker_that_dies_while_it_starts_is_started_again(tmp_path: Path) -> None:
    (deaths := tmp_path / "deaths").write_text("once\n")
    env = {"CFG_DIE": str(deaths), "CFG_STEP_S": "0.1"}
    with Server("--port", "0", "--workers", "2", env=env).ready() as server:
        assert server.get("/") == b"hello"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    assert sum("ended with code 7; starting another" in line for line in server.output) == 1


def test_workers_that_die_again_and_again_end_the_gateway(tmp_path: Path) -> None:
    (deaths := tmp_path / "deaths").write_text("again\n" * 100)
    with Server("--port", "0", "--workers", "2", env={"CFG_DIE": str(deaths), "CFG_STEP_S": "0.1"}) as server:
        assert server.wait() == 1
    assert server.output[-1] == "dragoman: a worker process died while starting, 3 times in a row"


@on_each_loop
def test_workers_do_not_outlive_their_supervisor(backend: str) -> None:
    with Server("--port", "0", "--backend", backend, "--workers", "2").ready() as server:
        pids = _pids(server, 2)
        os.kill(server.pid, signal.SIGKILL)
        server.wait_until_closed()
        # The pipe of stderr is closed when the last of them has gone.
        server.wait()
    assert len(pids) == 2
    assert server.output.count("the application has shut down") == 2


def test_the_earliest_time_ends_the_process() -> None:
    code = "import threading; from dragoman_server.serving.exit_timer import ExitTimer; timer = ExitTimer()\n"
    code += "for seconds in (3600, 0.01, 7200): timer.within(seconds)\nthreading.Event().wait()"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


# In this process.


async def _unused(scope: object, receive: object, send: object) -> None:
    raise AssertionError("never called")


def test_uvloop_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    settings = Settings(server=ServerSettings(backend="uvloop", port=0))
    with pytest.raises(StartupError, match="uvloop is not installed; use --backend asyncio or trio"):
        serve(settings, lambda _: _unused, on_ready=lambda _: None)


def test_an_address_that_cannot_be_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"^cannot listen on 127.0.0.1 port {port}: Address already in use"
        with pytest.raises(StartupError, match=text):
            bind(ServerSettings(port=port))
    with pytest.raises(StartupError, match=r"cannot listen on a\.\.b"):
        bind(ServerSettings(host="a..b"))
    text = "cannot listen on 192.0.2.1 port 0: Cannot assign requested address; choose an address"
    with pytest.raises(StartupError, match=re.escape(text)):
        bind(ServerSettings(host="192.0.2.1", port=0))


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80"), ("a.b", "http://a.b:80")],
)
def test_the_url(host: str, url: str) -> None:
    assert BoundAddress("http", host, 80, "trio").url == url
