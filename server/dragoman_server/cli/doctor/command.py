"""`dragoman doctor`: print problems of the configuration, this machine and the upstreams, and how to fix them."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio
import click
from msgspec.structs import asdict

from dragoman_server import __version__
from dragoman_server.accounts.prices import price_source
from dragoman_server.capabilities.cloud_apis import cloud_api_of, host_name
from dragoman_server.capabilities.providers import kind_of_host, local_server_at, provider_at
from dragoman_server.cli.clients import CLIENTS, first_requests
from dragoman_server.cli.options import FAILURE, config_option, loader, print_lines
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.platform.extras import NEEDS_EXTRA
from dragoman_server.settings import SIMULATOR, UpstreamSettings
from dragoman_server.settings.problems import CheckFinding, CheckSeverity, ConfigError, ConfigProblem

# The version of the shape of --json. More members need no new one.
_JSON_VERSION = 1

_COLOURS = {
    CheckSeverity.OK: "green",
    CheckSeverity.NOTE: "cyan",
    CheckSeverity.WARNING: "yellow",
    CheckSeverity.ERROR: "red",
}
_WIDTH = max(map(len, CheckSeverity)) + 2

_options = [
    config_option,
    click.Option(["--json", "as_json"], is_flag=True, help="print one JSON object, for programs"),
    click.Option(["--spend"], is_flag=True, help="also request a response of a few tokens with each account"),
    click.Option(
        ["--timeout", "timeout_s"],
        type=click.FloatRange(0.1, 600),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="longest wait for an upstream",
    ),
]


@click.command(params=_options)
def doctor(config_file: str | None, as_json: bool, spend: bool, timeout_s: float) -> None:
    """Find problems and print how to fix them.

    It checks settings, variables, files and their modes, the port, the stores, proxies, names, certificates and
    the clock. It requests the list of models of each upstream with each account, and with --spend a short response.

    Exit codes: 0 without errors, also if there are warnings; 1 with errors; 2 for a wrong command line.
    """
    findings = []
    for finding in _findings(config_file, timeout_s, spend):
        findings.append(finding)
        if not as_json:
            print_lines(finding_lines(finding), sys.stdout, os.environ)
    errors, warnings = _count(findings, CheckSeverity.ERROR), _count(findings, CheckSeverity.WARNING)
    if as_json:
        click.echo(json.dumps(_report(findings), indent=2))
    else:
        click.echo(f"\nerrors: {errors}, warnings: {warnings}")
    sys.exit(FAILURE if errors else 0)


def _findings(config_file: str | None, timeout_s: float, spend: bool) -> Iterator[CheckFinding]:
    try:
        loaded = loader(config_file, {})()
    except ConfigError as error:
        yield from map(_of_problem, error.problems)
        return
    # Both take a while to import.
    from dragoman_server.cli.doctor.offline import offline_findings
    from dragoman_server.cli.doctor.online import online_findings

    yield _summary(loaded)
    yield from offline_findings(loaded)
    yield from map(_host, loaded.settings.upstreams)
    # On asyncio whatever the gateway's backend is: on trio Ctrl-C would be a group of exceptions.
    yield from anyio.run(
        partial(
            online_findings, loaded, timeout_s=timeout_s, spend=spend, first_requests=first_requests(CLIENTS)
        )
    )


def _of_problem(problem: ConfigProblem) -> CheckFinding:
    origin = problem.origin
    subject = ": ".join(filter(None, (origin.place, origin.where)))
    text, missing, fix = problem.text.partition(NEEDS_EXTRA)
    if missing:
        return CheckFinding.error("config", subject, text + missing.rstrip(": "), fix)
    fix = f"correct {origin.changed_at}"
    if not origin.where and not Path(origin.source).exists():
        fix = f"dragoman init --config {shlex.quote(origin.source)}"
    return CheckFinding.error("config", subject, problem.text, fix)


def _summary(loaded: LoadedConfig) -> CheckFinding:
    place = loaded.path or "the environment"
    if not loaded.settings.upstreams:
        text = f"names no upstream, so only the simulator ({SIMULATOR}) responds"
        fix = "dragoman init"
        if loaded.path is not None:
            fix = f"add [[upstreams]] to {place}; `dragoman init --force` replaces the whole file by what it finds"
        return CheckFinding.note("config", place, text, fix)
    upstreams = ", ".join(upstream.name for upstream in loaded.settings.upstreams)
    return CheckFinding.ok("config", place, f"is correct; upstreams: {upstreams}")


def _host(upstream: UpstreamSettings) -> CheckFinding:
    """Say what is known of an upstream's host: each row of a table that is about it, with source and date."""
    # It takes a while to import.
    from dragoman_server.models.listing import can_list

    url, host = upstream.base_url, upstream.host
    row, where = provider_at(url, host), kind_of_host(url, host)
    known = ["gets what nearly all servers accept" if row is None else f"as of {row.date}, by {row.source}"]
    if row is None and (server := local_server_at(url)) is not None:
        known.append(f"its port is that of {server.title}, as of {server.date}, by {server.source}")
    if (api := cloud_api_of(upstream)) is not None:
        known.append(f"called as {host_name(upstream)}, as of {api.date}, by {api.source}")
        betas = f"those known of {api.betas}" if api.betas else "all"
        known.append(f"betas: {betas}{' and unknown ones' if api.betas and api.unknown_betas else ''}")
    if row is not None and not can_list(upstream):
        known.append("no list of models")
    if (prices := price_source(url)) is not None:
        known.append("prices as of {1}, by {0}".format(*prices))
    return CheckFinding.ok("host", f"upstream {upstream.name}", f"is at {where}: {'; '.join(known)}")


def finding_lines(finding: CheckFinding) -> Iterator[str]:
    """Yield a finding as text, in colours."""
    label = click.style(f"{finding.severity:<{_WIDTH}}", fg=_COLOURS[finding.severity], bold=True)
    yield f"{label}{finding.subject}: {finding.text}"
    if finding.fix:
        yield f"{'':<{_WIDTH}}fix: {finding.fix}"


def _report(findings: Sequence[CheckFinding]) -> dict[str, object]:
    """Return the object of --json, which docs/doctor.md describes."""
    return {
        "version": _JSON_VERSION,
        "dragoman": __version__,
        "errors": _count(findings, CheckSeverity.ERROR),
        "warnings": _count(findings, CheckSeverity.WARNING),
        "findings": [{**asdict(finding), "fix": finding.fix or None} for finding in findings],
    }


def _count(findings: Sequence[CheckFinding], severity: CheckSeverity) -> int:
    return sum(finding.severity is severity for finding in findings)
