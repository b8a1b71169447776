"""Checks that need sockets: the port, stores on servers, the upstreams, and by them the clock; run in parallel."""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import anyio

from dragoman_server.accounts.key_findings import key_findings
from dragoman_server.accounts.stored_keys import StoredKeys
from dragoman_server.accounts.stores.base import AccountStoreError
from dragoman_server.accounts.stores.resilient import PROBE
from dragoman_server.cli.doctor.upstreams import UpstreamExamination
from dragoman_server.cli.listeners import find_listener, port_advice
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.serving.sockets import AddressInUse, StartupError, bind
from dragoman_server.serving.tls import check_client_certificate
from dragoman_server.settings.problems import CheckFinding
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.client import UpstreamClient, origin_of
from dragoman_server.usage.stores.base import UsageBatch, UsageStoreError

NO_CLIENTS: Mapping[str, int] = MappingProxyType({})

# How many accounts are examined at the same time.
_MAX_CONCURRENT = 32

# Seconds for the store's server to respond. Its own limits are shorter.
_STORE_S = 5.0

# How far the clock may be wrong, in seconds. Beyond some minutes certificates and signed requests are refused.
_MAX_CLOCK_DIFFERENCE_S = 60.0


async def online_findings(
    loaded: LoadedConfig, *, timeout_s: float, spend: bool, first_requests: Mapping[str, int] = NO_CLIENTS
) -> list[CheckFinding]:
    """Return the findings, good or bad, in the order of the configuration.

    timeout_s, spend, first_requests: see UpstreamExamination.
    """
    async with anyio.create_task_group() as tasks:
        port = tasks.start_soon(_examine_port, loaded)
        accounts = tasks.start_soon(_examine_store, loaded, "account_store")
        usage = tasks.start_soon(_examine_store, loaded, "usage_store")
        examinations = await examine_upstreams(
            loaded, timeout_s=timeout_s, spend=spend, first_requests=first_requests
        )
    upstreams = [finding for examination in examinations for finding in examination.findings]
    stores = (*accounts.return_value, *usage.return_value)
    return [port.return_value, *stores, *_clock(examinations), *upstreams]


async def examine_upstreams(
    loaded: LoadedConfig,
    *,
    timeout_s: float,
    limit_s: float = math.inf,
    spend: bool = False,
    first_requests: Mapping[str, int] = NO_CLIENTS,
) -> list[UpstreamExamination]:
    """Examine all upstreams in parallel, and return the results after `limit_s`.

    timeout_s, spend, first_requests: see UpstreamExamination.
    """
    limiter = anyio.CapacityLimiter(_MAX_CONCURRENT)
    certfile = loaded.settings.server.upstream_certfile
    try:
        check_client_certificate(certfile)
    except StartupError:  # another check reports it
        certfile = None
    async with UpstreamClient(certfile=certfile) as client:
        examinations = [
            UpstreamExamination(loaded, index, client, timeout_s, spend, limiter, first_requests)
            for index in range(len(loaded.settings.upstreams))
        ]
        with anyio.move_on_after(limit_s):
            async with anyio.create_task_group() as tasks:
                for examination in examinations:
                    tasks.start_soon(examination.run)
    return examinations


async def _examine_port(loaded: LoadedConfig) -> CheckFinding:
    server = loaded.settings.server
    subject, place = "server.port", loaded.origin("server", "port").changed_at
    try:
        bind(server).close()
    except AddressInUse as error:
        listener = await find_listener(error.address)
        if listener.url is not None:
            return CheckFinding.note("port", subject, f"is in use by {listener}")
        fix = f"{port_advice(error.address)}, or change the port: {place}"
        return CheckFinding.error("port", subject, f"{error} by {listener}", fix)
    except StartupError as error:
        text, _, fix = str(error).partition("; ")
        fix = fix or f"change the address: {loaded.origin('server', 'host').changed_at}"
        return CheckFinding.error("port", subject, text, fix)
    return CheckFinding.ok("port", subject, f"{server.host} port {server.port} is free")


async def _examine_store(loaded: LoadedConfig, name: str) -> list[CheckFinding]:
    server = loaded.settings.server
    url: Secret | None = getattr(server, f"{name}_url")
    if getattr(server, name) != "valkey" or url is None:
        return []
    # They need the extra.
    from dragoman_server.accounts.stores.valkey import ValkeyAccountStore
    from dragoman_server.usage.stores.valkey import ValkeyUsageStore

    store: ValkeyAccountStore | ValkeyUsageStore
    if name == "account_store":
        store = accounts = ValkeyAccountStore(url.reveal())
        write: Callable[[], Awaitable[object]] = partial(accounts.apply, PROBE)
        report = CheckFinding.error
    else:
        store = usage = ValkeyUsageStore(url.reveal())
        write = partial(usage.add, UsageBatch("doctor", {}, {}, 0))
        report = CheckFinding.warning  # the gateway serves without it
    subject, findings = f"server.{name}_url", list[CheckFinding]()
    failure = f"the store did not respond within {_STORE_S:g} s"
    with anyio.move_on_after(_STORE_S):
        async with store.running():
            try:
                await write()
                failure = ""
                if isinstance(store, ValkeyAccountStore) and server.stored_keys:
                    stored = StoredKeys(store)
                    await stored.refresh()
                    keys = [*loaded.settings.client_keys, *stored.keys.values()]
                    known = set(key_findings(loaded.settings, loaded.settings.client_keys, all_known=False))
                    findings = [each for each in key_findings(loaded.settings, keys) if each not in known]
            except (AccountStoreError, UsageStoreError) as error:
                failure = str(error)
    if not failure:
        return [*findings, CheckFinding.ok("store", subject, "the store responds")]
    fix = f"start the server, or correct the URL: {loaded.origin('server', f'{name}_url').changed_at}"
    return [*findings, report("store", subject, loaded.settings.mask(failure), fix)]


def _clock(examinations: Sequence[UpstreamExamination]) -> Iterator[CheckFinding]:
    """Yield a finding if an upstream has another time than this machine."""
    for examination in examinations:
        if examination.ahead_s is not None and abs(examination.ahead_s) > _MAX_CLOCK_DIFFERENCE_S:
            _, host = origin_of(examination.upstream.base_url)
            direction = "ahead of" if examination.ahead_s > 0 else "behind"
            text = f"this machine's clock is {abs(examination.ahead_s):.0f} s {direction} that of {host}"
            yield CheckFinding.warning("clock", "clock", text, "sudo timedatectl set-ntp true")
            return
