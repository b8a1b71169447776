"""Checks that need sockets: the port, a store on a server, the upstreams, and by them the clock; run in parallel."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import anyio

from dragoman_server.accounts.stores.base import AccountStoreError
from dragoman_server.accounts.stores.operations import Add
from dragoman_server.cli.doctor.upstreams import UpstreamExamination
from dragoman_server.cli.listeners import find_listener, port_advice
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.serving.sockets import AddressInUse, StartupError, bind
from dragoman_server.settings.problems import CheckFinding
from dragoman_server.upstream.client import UpstreamClient, origin_of

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
    port: list[CheckFinding] = []
    store: list[CheckFinding] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_examine_port, loaded, port)
        tasks.start_soon(_examine_store, loaded, store)
        examinations = await examine_upstreams(
            loaded, timeout_s=timeout_s, spend=spend, first_requests=first_requests
        )
    upstreams = [finding for examination in examinations for finding in examination.findings]
    return [*port, *store, *_clock(examinations), *upstreams]


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
    async with UpstreamClient() as client:
        examinations = [
            UpstreamExamination(loaded, index, client, timeout_s, spend, limiter, first_requests)
            for index in range(len(loaded.settings.upstreams))
        ]
        with anyio.move_on_after(limit_s):
            async with anyio.create_task_group() as tasks:
                for examination in examinations:
                    tasks.start_soon(examination.run)
    return examinations


async def _examine_port(loaded: LoadedConfig, findings: list[CheckFinding]) -> None:
    server = loaded.settings.server
    subject, place = "server.port", loaded.origin("server", "port").changed_at
    try:
        bind(server).close()
    except AddressInUse as error:
        listener = await find_listener(error.address)
        if listener.url is None:
            fix = f"{port_advice(error.address)}, or change the port: {place}"
            findings.append(CheckFinding.error("port", subject, f"{error} by {listener}", fix))
        else:
            findings.append(CheckFinding.note("port", subject, f"is in use by {listener}"))
    except StartupError as error:
        text, _, fix = str(error).partition("; ")
        fix = fix or f"change the address: {loaded.origin('server', 'host').changed_at}"
        findings.append(CheckFinding.error("port", subject, text, fix))
    else:
        findings.append(CheckFinding.ok("port", subject, f"{server.host} port {server.port} is free"))


async def _examine_store(loaded: LoadedConfig, findings: list[CheckFinding]) -> None:
    server = loaded.settings.server
    if server.account_store != "valkey" or server.account_store_url is None:
        return
    from dragoman_server.accounts.stores.valkey import ValkeyAccountStore  # needs the extra

    subject = "server.account_store_url"
    failure = f"the store did not respond within {_STORE_S:g} s"
    store = ValkeyAccountStore(server.account_store_url.reveal())
    with anyio.move_on_after(_STORE_S):
        async with store.running():
            try:
                await store.apply(Add([("doctor", None)], 0.0, time.time()))
                failure = ""
            except AccountStoreError as error:
                failure = str(error)
    if not failure:
        findings.append(CheckFinding.ok("store", subject, "the store responds"))
        return
    fix = f"start the server, or correct the URL: {loaded.origin('server', 'account_store_url').changed_at}"
    findings.append(CheckFinding.error("store", subject, loaded.settings.mask(failure), fix))


def _clock(examinations: Sequence[UpstreamExamination]) -> Iterator[CheckFinding]:
    """Yield a finding if an upstream has another time than this machine."""
    for examination in examinations:
        if examination.ahead_s is not None and abs(examination.ahead_s) > _MAX_CLOCK_DIFFERENCE_S:
            _, host = origin_of(examination.upstream.base_url)
            direction = "ahead of" if examination.ahead_s > 0 else "behind"
            text = f"this machine's clock is {abs(examination.ahead_s):.0f} s {direction} that of {host}"
            yield CheckFinding.warning("clock", "clock", text, "sudo timedatectl set-ntp true")
            return
