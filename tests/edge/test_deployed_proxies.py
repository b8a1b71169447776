"""Behind nginx, HAProxy and Caddy, configured as in docs/deploy: streams, clients that leave, addresses, WebSockets."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command.process import DEADLINE_S
from edge import (
    CHAT_PATH,
    CHAT_STREAM,
    STREAM_HEAD,
    Conversation,
    Gateways,
    Running,
    Upstream,
    chat,
    chunk,
    post,
    read_response,
    streams,
    wait_until,
    waits,
)
from http_certificate import Certificate

pytestmark = pytest.mark.process

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
HOST = "llm.example"
CLIENT = "127.0.0.2"
# What a gateway with client keys needs no setting for is its name.
# Seconds for a part of a stream, and how many streams are tried.
PART_S = 5.0
TRIES = 3
SERVER = f'trusted_proxies = ["127.0.0.1"]\nallowed_hosts = ["{HOST}"]'

NGINX = """
daemon off; master_process off; pid {directory}/pid; error_log {directory}/error;
events {{}}
http {{
  access_log off;
  client_body_temp_path {directory}/a; proxy_temp_path {directory}/b; fastcgi_temp_path {directory}/c;
  uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;
  {shipped}
}}
"""
CADDY = """
{{
  admin off
  auto_https disable_redirects
  default_bind 127.0.0.1
}}
{shipped}
"""


def configuration(name: str, directory: Path, certificate: Certificate, port: int, gateway: int) -> str:
    """The shipped file, with the ports and files of the test."""
    if name == "nginx":
        text = (DEPLOY / "nginx.conf").read_text("utf-8")
        values = {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/certs/llm.example.pem": str(certificate.cert),
            "/etc/ssl/private/llm.example.key": str(certificate.key),
        }
        around = NGINX
    elif name == "haproxy":
        text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
        pem = directory / "pem"
        pem.write_bytes(Path(certificate.cert).read_bytes() + Path(certificate.key).read_bytes())
        values = {"bind :443": f"bind 127.0.0.1:{port}", "/etc/ssl/private/llm.example.pem": str(pem)}
        around = "{shipped}"
    else:
        text = (DEPLOY / "Caddyfile").read_text("utf-8")
        tls = f"tls {certificate.cert} {certificate.key}"
        values = {f"{HOST} {{": f"https://{HOST}:{port} {{\n{tls}"}
        around = CADDY
    for old, new in {**values, "127.0.0.1:8080": f"127.0.0.1:{gateway}"}.items():
        before, found, after = text.rpartition(old)
        assert found, f"the file has no {old}"
        text = before + new + after
    return around.format(directory=directory, shipped=text)


class DeployedProxy:
    """A proxy that runs. connect(): a TLS connection to it from CLIENT."""

    def __init__(self, name: str, directory: Path, certificate: Certificate, gateway: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port: int = found.getsockname()[1]
        file = directory / "Caddyfile"  # Caddy chooses the language by the name
        file.write_text(configuration(name, directory, certificate, self.port, gateway))
        nginx = ["nginx", "-p", str(directory), "-c", str(file), "-e", str(directory / "error")]
        command = {
            "nginx": nginx,
            "haproxy": ["haproxy", "-f", str(file)],
            "caddy": ["caddy", "run", "--config", str(file)],
        }[name]
        with (directory / "output").open("w") as out:
            env = {"PATH": os.environ["PATH"], "HOME": str(directory)}
            self._process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
        self._output = directory / "output"

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection(("127.0.0.1", self.port), DEADLINE_S, source_address=(CLIENT, 0))
        return context.wrap_socket(plain, server_hostname=HOST)

    def _accepts(self) -> bool:
        assert self._process.poll() is None, self._output.read_text()
        with contextlib.suppress(OSError), self.connect():
            return True
        return False

    def __enter__(self) -> DeployedProxy:
        wait_until(self._accepts)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)


@pytest.fixture(params=["nginx", "haproxy", "caddy"], scope="module")
def running(
    request: pytest.FixtureRequest,
    gateways: Gateways,
    certificate: Certificate,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[DeployedProxy, Running]]:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    with gateways.lend("asyncio", server=SERVER) as lent:
        directory = tmp_path_factory.mktemp(name)
        with DeployedProxy(name, directory, certificate, lent.gateway.port) as proxy:
            yield proxy, lent


def headers(**more: str) -> dict[str, str]:
    return {"host": HOST, **{name.replace("_", "-"): value for name, value in more.items()}}


def read_until(client: ssl.SSLSocket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        more = client.recv(65536)
        assert more, data
        data += more
    return data


@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/messages", "/chat/sse", "/chat/stream"])
def test_each_part_of_a_stream_arrives_before_the_next_is_sent(
    running: tuple[DeployedProxy, Running], path: str
) -> None:
    proxy, (upstream, _) = running
    # Debian's Caddy 2.6.2 stops within one stream in some hundred, also in front of a server that is not ours.
    for _ in range(TRIES):
        if _passes_in_parts(proxy, upstream, path):
            return
    pytest.fail(f"no stream came through in parts in {TRIES} tries")


def _passes_in_parts(proxy: DeployedProxy, upstream: Upstream, path: str) -> bool:
    """Return false if a part does not arrive within PART_S."""
    arrived = threading.Semaphore(0)

    def script(conversation: Conversation) -> None:
        conversation.read()
        conversation.send(STREAM_HEAD)
        for word in ("first", "second"):
            conversation.send(chunk(word))
            if not arrived.acquire(timeout=PART_S):
                return
        conversation.send(CHAT_STREAM)

    upstream.restart(script)
    with proxy.connect() as client:
        client.settimeout(PART_S)
        client.sendall(post(path, chat(max_tokens=50), headers()))
        try:
            for word in (b"first", b"second"):
                read_until(client, word)
                arrived.release()
            read_until(client, b"0\r\n\r\n")
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_the_request_to_the_upstream(
    running: tuple[DeployedProxy, Running], stream: bool
) -> None:
    proxy, (upstream, _) = running
    upstream.restart(waits)
    with proxy.connect() as client:
        client.sendall(post(CHAT_PATH, chat(stream=stream), headers()))
        conversation = upstream.wait_for(1)
        if stream:
            read_until(client, b"Hello")
    upstream.wait_closed(conversation)


def test_the_log_has_the_clients_address_and_not_the_one_that_it_claims(
    running: tuple[DeployedProxy, Running],
) -> None:
    proxy, (_, gateway) = running
    with proxy.connect() as client:
        client.sendall(post("/v1/nothing", {}, headers(x_forwarded_for="198.51.100.1")))
        assert b" 404 " in read_response(client)
    assert gateway.log()[-1]["client_address"] == CLIENT


@pytest.mark.parametrize(("path", "status"), [("/v1/responses", b"101"), ("/v1/messages", b"426")])
def test_a_websocket_is_accepted_where_there_is_one(
    running: tuple[DeployedProxy, Running], path: str, status: bytes
) -> None:
    proxy, _ = running
    handshake = (
        f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    with proxy.connect() as client:
        client.sendall(handshake.encode())
        # An accepted one has no end until it is closed for its silence.
        assert read_until(client, b"\r\n\r\n").startswith(b"HTTP/1.1 " + status)


def test_a_large_request_passes(running: tuple[DeployedProxy, Running]) -> None:
    proxy, (upstream, _) = running

    upstream.restart(streams)
    with proxy.connect() as client:
        client.sendall(post(CHAT_PATH, chat(user="x" * 8_000_000), headers()))
        assert b"Hello" in read_until(client, b"0\r\n\r\n")


def test_a_request_that_is_too_large_gets_the_gateways_error(running: tuple[DeployedProxy, Running]) -> None:
    proxy, _ = running
    head = f"POST /v1/messages HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 67108865\r\nexpect: 100-continue\r\n\r\n"
    with proxy.connect() as client:
        client.sendall(head.encode())
        assert b'"request_too_large"' in read_until(client, b"67108864")


@pytest.mark.parametrize("path", ["/admin/accounts", "/%61dmin/accounts"])
def test_the_accounts_are_not_for_clients(running: tuple[DeployedProxy, Running], path: str) -> None:
    proxy, (_, gateway) = running
    with proxy.connect() as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n".encode())
        assert b" 404 " in read_response(client)
    assert "/admin/accounts" not in [line.get("path") for line in gateway.log()]
