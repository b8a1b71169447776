"""`dragoman doctor`: print what is wrong with the configuration, this machine and the upstreams, and how to mend it."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import anyio
import click

from dragoman_server.cli.options import FOUND_ERRORS, config_option, print_lines
from dragoman_server.config.loader import LoadedConfig, load
from dragoman_server.config.problems import ConfigError, ConfigProblem, Finding, Severity
from dragoman_server.settings import SIMULATOR

# The version of the shape of --json. More members need no new one.
_JSON_VERSION = 1

_COLOURS = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "red"}
_WIDTH = max(map(len, Severity)) + 2

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
    """Find what is wrong, and how to mend it.

    It checks settings, variables, files and their modes, the port, the stores, proxies, names, certificates and
    the clock. It requests the list of models of each upstream with each account, and with --spend a short response.

    Exit codes: 0 without errors, also if there are warnings; 1 with errors; 2 for a wrong command line.
    """
    findings = list(_findings(config_file, timeout_s, spend))
    if as_json:
        click.echo(json.dumps(_report(findings), indent=2))
    else:
        print_lines(_lines(findings), sys.stdout, os.environ)
    sys.exit(FOUND_ERRORS if _count(findings, Severity.ERROR) else 0)


def _findings(config_file: str | None, timeout_s: float, spend: bool) -> Iterator[Finding]:
    try:
        loaded = load(path=config_file, environ=os.environ)
    except ConfigError as error:
        yield from map(_of_problem, error.problems)
        return
    # Both take a while to import.
    from dragoman_server.diagnosis.offline import offline_findings
    from dragoman_server.diagnosis.online import online_findings

    yield _summary(loaded)
    yield from offline_findings(loaded)
    examine = partial(online_findings, loaded, timeout_s=timeout_s, spend=spend)
    backend = "trio" if loaded.settings.server.backend == "trio" else "asyncio"
    yield from anyio.run(examine, backend=backend)


def _of_problem(problem: ConfigProblem) -> Finding:
    origin = problem.origin
    subject = ": ".join(filter(None, (origin.place, origin.where)))
    mend = f"correct {origin.changed_at}"
    if not origin.where and not Path(origin.source).exists():
        mend = f"dragoman init --config {shlex.quote(origin.source)}"
    return Finding(Severity.ERROR, "config", subject, problem.text, mend)


def _summary(loaded: LoadedConfig) -> Finding:
    place = loaded.path or "the environment"
    if not loaded.settings.upstreams:
        text = f"names no upstream, so only the simulator ({SIMULATOR}) responds"
        mend = (
            "dragoman init"
            if loaded.path is None
            else f"dragoman init --force, or add [[upstreams]] to {place}"
        )
        return Finding(Severity.NOTE, "config", place, text, mend)
    upstreams = ", ".join(upstream.name for upstream in loaded.settings.upstreams)
    return Finding(Severity.OK, "config", place, f"is correct; upstreams: {upstreams}")


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings as text, in colours."""
    for each in findings:
        label = click.style(f"{each.severity:<{_WIDTH}}", fg=_COLOURS[each.severity], bold=True)
        yield f"{label}{each.subject}: {each.text}"
        if each.mend:
            yield f"{'':<{_WIDTH}}fix: {each.mend}"
    errors, warnings = _count(findings, Severity.ERROR), _count(findings, Severity.WARNING)
    yield ""
    yield f"errors: {errors}, warnings: {warnings}"


def _report(findings: Sequence[Finding]) -> dict[str, object]:
    """Return the object of --json, which docs/doctor.md describes."""
    return {
        "version": _JSON_VERSION,
        "dragoman": version("dragoman"),
        "errors": _count(findings, Severity.ERROR),
        "warnings": _count(findings, Severity.WARNING),
        "findings": [
            {
                "severity": each.severity,
                "check": each.check,
                "subject": each.subject,
                "text": each.text,
                "fix": each.mend or None,
            }
            for each in findings
        ],
    }


def _count(findings: Sequence[Finding], severity: Severity) -> int:
    return sum(each.severity is severity for each in findings)
