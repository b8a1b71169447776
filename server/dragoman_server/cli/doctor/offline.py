"""Checks that need no network: `dragoman config check` is these, and `dragoman doctor` begins with them.

Each one is a function from the loaded configuration to findings; OFFLINE_CHECKS is the list.
"""

import math
import os
import shlex
import shutil
import ssl
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman_server.capabilities.cloud_apis import cloud_api_of
from dragoman_server.capabilities.providers import address_of
from dragoman_server.capabilities.resolve import upstreams_without_grammars
from dragoman_server.cli.doctor.failures import EXPIRED, NOT_YET_VALID
from dragoman_server.cli.usage import with_usage_file
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.hosts.credentials import cloud_credential
from dragoman_server.platform.extras import install_command, missing_extra
from dragoman_server.proxying.tool_grammar import grammar_checker
from dragoman_server.settings import ARRAYS
from dragoman_server.settings.fields import DAY_S, settings_of
from dragoman_server.settings.problems import CheckFinding, ValueOrigin, quote_value
from dragoman_server.settings.secret import Secret, url_secrets
from dragoman_server.settings.values import is_loopback
from dragoman_server.upstream.urls import environment_proxies

if TYPE_CHECKING:
    from dragoman_server.platform.sqlite_file import SQLiteFileFormat

# Authorities that renew by themselves do it thirty days before the end, so something has failed by then.
_RENEW_DAYS = 14
# Below that SQLite soon fails to write.
_MIN_FREE_BYTES = 16_000_000

_OUTSIDE_VALIDITY = (NOT_YET_VALID, EXPIRED)

# The modules with the formats of files, by the setting that names the file.
_STORES = {
    "response_store_path": "dragoman_server.responses.stores.sqlite",
    "account_store_path": "dragoman_server.accounts.stores.sqlite",
    "usage_store_path": "dragoman_server.usage.stores.sqlite",
}

_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def offline_findings(loaded: LoadedConfig) -> list[CheckFinding]:
    """Return the problems and remarks that need no network to be found."""
    return [finding for check in OFFLINE_CHECKS for finding in check(loaded)]


def _warnings(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    yield from loaded.warnings


def _grammars(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    unchecked = upstreams_without_grammars(loaded.settings)
    if unchecked and loaded.settings.server.check_grammars and grammar_checker() is None:
        text = (
            "what models write for tools with a grammar is not checked, because dragoman[grammar] is not installed; "
            f"these upstreams do not check it themselves: {', '.join(unchecked)}"
        )
        fix = install_command("grammar")
        yield CheckFinding.note("extra", "server.check_grammars", text, fix)


def _clouds(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    """Yield the upstreams whose credentials cannot be found, because a library for that is not installed."""
    for upstream in loaded.settings.upstreams:
        api = cloud_api_of(upstream)
        if api is None or not api.extra or missing_extra(api.extra) is None:
            continue
        if any(cloud_credential(upstream, account) for account in loaded.settings.accounts_of(upstream)):
            text = (
                f"has no api_key, and dragoman[{api.extra}], which finds other credentials, is not installed"
            )
            fix = install_command(api.extra)
            yield CheckFinding.error("extra", f"upstream {upstream.name}", text, fix)


def _startup(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    """Yield what keeps the server from starting, except for its port."""
    server = loaded.settings.server
    if server.backend != "uvloop" and not (server.certfile or server.upstream_certfile):
        return
    # The server takes a while to import.
    from dragoman_server.serving.run import check_backend
    from dragoman_server.serving.sockets import StartupError
    from dragoman_server.serving.tls import check_tls

    try:
        check_backend(server.backend)
    except StartupError as error:
        text, _, fix = str(error).partition("; ")
        yield CheckFinding.error("backend", "server.backend", text, fix)
    try:
        check_tls(server)
    except StartupError as error:
        names = ("upstream_certfile", "keyfile")
        name = next((name for name in names if f"the {name}" in str(error)), "certfile")
        fix = f"correct {loaded.origin('server', name).changed_at}"
        yield CheckFinding.error("certificate", f"server.{name}", str(error), fix)
    else:
        if server.certfile is not None and server.keyfile is not None:
            yield from _expiry(loaded, server.certfile, server.keyfile)


def _expiry(loaded: LoadedConfig, certfile: str, keyfile: str) -> Iterator[CheckFinding]:
    """Yield a finding if the gateway's certificate has expired or soon will. It can be served all the same."""
    until = _valid_until(certfile, keyfile)
    days = (until - time.time()) / DAY_S
    if days < _RENEW_DAYS:
        text = f"{certfile} expires on {datetime.fromtimestamp(until, UTC):%Y-%m-%d}"
        if not until:
            text = f"{certfile} has expired or is not valid yet"
        fix = f"renew it: {loaded.origin('server', 'certfile').changed_at}"
        yield CheckFinding.warning("certificate", "server.certfile", text, fix)


def _valid_until(certfile: str, keyfile: str) -> float:
    """Return the end of a certificate's validity in seconds since the epoch; 0 if it is not valid, infinity if unknown.

    The standard library shows a certificate only to the other side of a handshake, so there is one in memory.
    """
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ours.load_cert_chain(certfile, keyfile)
    theirs.check_hostname = False
    theirs.load_verify_locations(certfile)
    theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = theirs.wrap_bio(to_client, to_server)
    server = ours.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        certificate = client.getpeercert()
    except ssl.SSLCertVerificationError as error:
        return 0.0 if error.verify_code in _OUTSIDE_VALIDITY else math.inf
    except (ssl.SSLError, ValueError):
        return math.inf
    return ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else math.inf


def _file_modes(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    """Yield the files with secrets that other users of the machine may read."""
    with_secrets: dict[str, str] = {}
    for origin in _secret_origins(loaded):
        if origin.source == loaded.path and not origin.references:
            with_secrets.setdefault(origin.source, f"has a secret in line {origin.line}")
        for name in origin.references:
            if name.startswith("file:") and loaded.path is not None:
                path = Path(loaded.path).parent / Path(name.removeprefix("file:")).expanduser()
                with_secrets.setdefault(str(path), "is a key")
    server = loaded.settings.server
    for file in (server.keyfile, server.upstream_certfile):
        if file is not None:
            with_secrets.setdefault(file, "has the private key of a certificate")
    for file, reason in with_secrets.items():
        # A file that cannot be read is a problem by itself.
        if os.name == "posix" and os.path.isfile(file) and os.stat(file).st_mode & _READABLE_BY_OTHERS:
            text = f"{reason}, and other users of this machine may read it"
            yield CheckFinding.warning("file_mode", file, text, f"chmod 600 {shlex.quote(file)}")


def _secret_origins(loaded: LoadedConfig) -> Iterator[ValueOrigin]:
    settings = loaded.settings
    rows: list[tuple[tuple[str | int, ...], object]] = [(("server",), settings.server)]
    rows += [((name, index), row) for name in ARRAYS for index, row in enumerate(getattr(settings, name))]
    for path, row in rows:
        for name in settings_of(type(row)):
            value = getattr(row, name)
            if isinstance(value, Secret):
                # The address of a proxy or a store is a secret only with credentials in it.
                if not name.endswith(("proxy", "_url")) or any(url_secrets(value.reveal())):
                    yield loaded.origin(*path, name)
            elif isinstance(value, Mapping):
                yield from (loaded.origin(*path, name, header) for header in value)


def _store_files(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    """Yield the files of stores, and the audit log, that cannot be written."""
    server = with_usage_file(loaded).settings.server
    files = [name for name in _STORES if getattr(server, name.removesuffix("_path")) == "sqlite"]
    for name in [*files, *(["audit_log"] if server.audit_log else [])]:
        path, subject = Path(getattr(server, name)), f"server.{name}"
        folder, report = path.parent, CheckFinding.error
        if name == "usage_store_path":  # the gateway makes its folder, and serves without the file
            folder = next(parent for parent in path.parents if parent.exists())
            report = CheckFinding.warning
        if not folder.exists():
            text, fix = f"the directory {folder} does not exist", f"mkdir -p {shlex.quote(str(folder))}"
            yield report("store", subject, text, fix)
        elif (free := shutil.disk_usage(folder).free) < _MIN_FREE_BYTES:
            text = f"the disk of {folder.absolute()} is full: {free // 1_000_000} MB are free"
            yield CheckFinding.warning(
                "store", subject, text, "make room on it"
            )  # the gateway serves all the same
        # SQLite makes further files next to it.
        for needed in (folder, path):
            if needed.exists() and not os.access(needed, os.R_OK | os.W_OK):
                place, text = loaded.origin("server", name).changed_at, f"{needed} cannot be written"
                fix = f'sudo chown "$(id -un)" {shlex.quote(str(needed))}, or name another file: {place}'
                if os.name == "posix" and os.statvfs(needed).f_flag & os.ST_RDONLY:
                    text, fix = f"{text}: its file system is read-only", f"name another file: {place}"
                yield report("store", subject, text, fix)
                break
        else:
            maker = _other_maker(name, path) if path.is_file() else None
            if maker is not None:
                fix = f"name another file: {loaded.origin('server', name).changed_at}"
                yield report("store", subject, f"{path} was made by {maker}", fix)


def _other_maker(name: str, path: Path) -> str | None:
    """Return who else has made the file of a store, None if nobody has. name: of the setting."""
    if name not in _STORES:
        return None
    # It takes a while to import.
    file_format: SQLiteFileFormat = import_module(_STORES[name]).FILE_FORMAT
    return file_format.other_maker(str(path))


def _keys(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    """Yield what has requests with client keys refused: also with those in the file of a store."""
    settings = loaded.settings
    if not (settings.groups or settings.needs_keys):
        return
    # They take a while to import.
    from dragoman_server.accounts.key_findings import key_findings
    from dragoman_server.cli.stores import STORE_ERRORS, read_keys

    path, keys = settings.server.account_store_path, [*settings.client_keys]
    in_file = settings.server.account_store == "sqlite"
    if settings.server.stored_keys and in_file and path is not None and Path(path).is_file():
        try:
            keys = read_keys(settings)
        except STORE_ERRORS:  # _store_files() says what is wrong with it
            in_file = False
    yield from key_findings(settings, keys, all_known=in_file)


def _proxies(loaded: LoadedConfig) -> Iterator[CheckFinding]:
    """Yield the proxy by which each upstream is reached."""
    in_environment = bool(environment_proxies())
    for index, upstream in enumerate(loaded.settings.upstreams):
        subject = f"upstream {upstream.name}"
        if upstream.proxy is not None:
            place = loaded.origin("upstreams", index, "proxy").changed_at
            text = f"is reached by the proxy {_address(upstream.proxy.reveal())} of {place}"
            yield CheckFinding.note("proxy", subject, text)
        elif in_environment:
            # The HTTP client takes a while to import.
            from dragoman_server.upstream.client import environment_proxy

            proxy = environment_proxy(upstream.base_url)
            if proxy is None:
                continue
            text = f"is reached by the proxy {_address(proxy)} of the environment"
            host, _ = address_of(upstream.base_url)
            if is_loopback(host):
                text += ", although it is on this machine"
                fix = f'export no_proxy="${{no_proxy:+$no_proxy,}}{host}"'
                yield CheckFinding.warning("proxy", subject, text, fix)
            else:
                yield CheckFinding.note("proxy", subject, text)


def _address(proxy: str) -> str:
    """Return the host and port of a proxy's URL, without the credentials in it."""
    try:
        parts = urlsplit(proxy)
        return f"{parts.hostname}:{parts.port}" if parts.port else f"{parts.hostname}"
    except ValueError:
        return quote_value(proxy)


OFFLINE_CHECKS: tuple[Callable[[LoadedConfig], Iterator[CheckFinding]], ...] = (
    _warnings,
    _startup,
    _file_modes,
    _store_files,
    _keys,
    _proxies,
    _grammars,
    _clouds,
)
