"""`dragoman lint`: a stream, a response, an error or an endpoint, judged by the rules of its protocol."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from dragoman import UPSTREAMS
from dragoman import lint as judge
from dragoman_server.cli.inputs import PROTOCOL_NAMES, PROTOCOLS_HELP, begins_stream, read_document
from dragoman_server.cli.options import FAILURE, exit_with

_KINDS = ("stream", "response", "error")

_PROTOCOLS = [name for name, spec in PROTOCOL_NAMES.items() if spec.name in judge.PROTOCOLS]

# The environment variable with the key: everybody on a machine can read the command lines of its processes.
_KEY_VARIABLE = "LINT_API_KEY"


@click.command(
    short_help="Check a server's responses against its protocol's documentation.",
    params=[
        click.Argument(["targets"], nargs=-1, metavar="[FILE|URL]..."),
        click.Option(["--cache"], is_flag=True, help="check recordings: where the prefix of a prompt broke"),
        click.Option(
            ["--protocol"],
            type=click.Choice(_PROTOCOLS),
            metavar="PROTOCOL",
            help=f"the protocol: {PROTOCOLS_HELP}; recordings name it",
        ),
        click.Option(
            ["--kind"], type=click.Choice(_KINDS), help="what FILE is; by default its content decides"
        ),
        click.Option(
            ["--status"],
            type=click.IntRange(100, 599),
            default=400,
            show_default=True,
            help="the HTTP status of an error in FILE",
        ),
        click.Option(
            ["--model"], metavar="NAME", help="the model for requests to URL; by default the first listed"
        ),
        click.Option(
            ["--key"],
            metavar="KEY",
            envvar=_KEY_VARIABLE,
            help=f"the key for URL, best from the environment [{_KEY_VARIABLE}]",
        ),
        click.Option(["--strict"], is_flag=True, help="exit with 1 for warnings too"),
        click.Option(["--all", "show_all"], is_flag=True, help="print each place, not one for each rule"),
        click.Option(["--json", "as_json"], is_flag=True, help="print each finding as a line of JSON"),
    ],
)
def lint(
    targets: tuple[str, ...],
    cache: bool,
    protocol: str | None,
    kind: str | None,
    status: int,
    model: str | None,
    key: str | None,
    strict: bool,
    show_all: bool,
    as_json: bool,
) -> None:
    """Check what a server sends against its protocol's documents.

    FILE, or stdin, is a stream, a whole response or an error. URL is an endpoint, this gateway's or another's, with or
    without the path: it gets eight small requests, whole and streamed, with a tool and with errors.

    A finding is an error if a real client fails, hangs, or loses content on it, and a warning if clients stand it,
    though the documents say otherwise. Each has the byte, the event (from 0), the member, what to do, and where the
    rule stands. They are printed on stdout, the sum on stderr.

    With --cache, each FILE is a recording of `dragoman serve --record DIR`: for each session it prints where a request
    no longer begins with the one before, who changed that (the gateway: an error, the client: a warning), and how many
    bytes of a cached prompt were lost.

    Exit codes: 0 without errors, 1 with errors (with --strict: or warnings) or if URL cannot be checked, 2 if the
    command line is wrong.
    """
    if cache:
        _check_cache(targets, strict=strict, as_json=as_json)
        return
    if len(targets) > 1:
        raise click.UsageError("one FILE or URL at a time; several only with --cache")
    if protocol is None:
        raise click.MissingParameter(param_type="option", param_hint="'--protocol'")
    target = targets[0] if targets else "-"
    name = PROTOCOL_NAMES[protocol].name
    if target.startswith(("http://", "https://")):
        reports = _check_url(target, name, key, model)
    else:
        reports = {target: _check_file(target, name, kind, status)}
    findings = 0
    errors = 0
    for place, report in reports.items():
        errors += sum(finding.rule.severity is judge.RuleSeverity.ERROR for finding in report.findings)
        findings += len(report.findings) + report.overflow
        for line in _json_lines(place, report) if as_json else _lines(place, report, show_all=show_all):
            click.echo(line)
    click.echo(f"{target}: {_sum(errors, findings - errors)}", err=True)
    if errors or (strict and findings):
        sys.exit(FAILURE)


def _check_file(target: str, protocol: str, kind: str | None, status: int) -> judge.Report:
    try:
        with click.open_file(target, "rb") as file:
            body = read_document(file)
    except OSError as error:
        raise click.BadParameter(f"{target}: {error.strerror}", param_hint="FILE") from None
    if kind is None:
        kind = "stream" if begins_stream(body) is not False else "response"
        if kind == "response" and UPSTREAMS[protocol].is_native_error(body):
            kind = "error"
    if kind == "stream":
        return judge.check_stream(protocol, body)
    return judge.check_error(protocol, status, body) if kind == "error" else judge.check_whole(protocol, body)


def _check_url(url: str, protocol: str, key: str | None, model: str | None) -> dict[str, judge.Report]:
    # They take a while to import, and a file needs none of them.
    import anyio

    from dragoman_server.cli.lint.endpoint_checks import EndpointChecks, EndpointError
    from dragoman_server.upstream.client import UpstreamClient

    async def check() -> dict[str, judge.Report]:
        async with UpstreamClient(expects_tls=url.startswith("https:")) as client:
            return await EndpointChecks(client, protocol, url, key, model).run()

    try:
        return anyio.run(check)
    except EndpointError as error:
        exit_with(FAILURE, str(error))


def _check_cache(targets: Sequence[str], *, strict: bool, as_json: bool) -> None:
    # They take a while to import.
    from dragoman_server.cli.lint.prefixes import check_prefixes
    from dragoman_server.recordings.document import RecordingError, load

    if not targets:
        raise click.MissingParameter(param_type="argument", param_hint="FILE")
    try:
        report = check_prefixes([(target, load(Path(target))) for target in targets])
    except RecordingError as error:
        raise click.BadParameter(str(error), param_hint="FILE") from None
    for prefix in report.broken:
        severity = "error" if prefix.by == "gateway" else "warning"
        if as_json:
            found = {"in": prefix.name, "rule": "cache-prefix", "severity": severity, **asdict(prefix)}
            del found["name"]
            click.echo(json.dumps(found))
            continue
        click.echo(f"{severity} cache-prefix in {prefix.name}")
        place = prefix.pointer or "another upstream or model"
        click.echo(f"  {place}: not as in {prefix.before}; changed by the {prefix.by}")
        click.echo(f"  {prefix.lost_bytes} of {prefix.prompt_bytes} bytes of the cached prompt were lost")
    errors = sum(prefix.by == "gateway" for prefix in report.broken)
    counted = f"{_count(report.requests, 'request')} in {_count(report.sessions, 'session')}"
    click.echo(f"{counted}: {_sum(errors, len(report.broken) - errors)}", err=True)
    if errors or (strict and report.broken):
        sys.exit(FAILURE)


def _sum(errors: int, warnings: int) -> str:
    if not errors and not warnings:
        return "no findings"
    counts = ((errors, "error"), (warnings, "warning"))
    return ", ".join(_count(count, word) for count, word in counts if count)


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _json_lines(place: str, report: judge.Report) -> Iterator[str]:
    for finding in report.findings:
        yield json.dumps(
            {
                "in": place,
                "rule": finding.rule.id,
                "severity": finding.rule.severity.value,
                "offset": finding.offset,
                "event": finding.frame,
                "pointer": finding.pointer,
                "detail": finding.detail,
                "fix": finding.rule.fix,
                "source": finding.rule.source,
            }
        )


def _lines(place: str, report: judge.Report, *, show_all: bool) -> Iterator[str]:
    """Yield the findings by rule, errors first."""

    def order(finding: judge.LintFinding) -> Any:
        return finding.rule.severity is not judge.RuleSeverity.ERROR, finding.rule.id

    for _, group in groupby(sorted(report.findings, key=order), key=order):
        findings: Sequence[judge.LintFinding] = list(group)
        rule = findings[0].rule
        yield f"{rule.severity.value} {rule.id} in {place}"
        for finding in findings if show_all else findings[:1]:
            event = "" if finding.frame is None else f", event {finding.frame}"
            pointer = f" {finding.pointer}" if finding.pointer else ""
            yield f"  byte {finding.offset}{event}{pointer}: {finding.detail}"
        if not show_all and len(findings) > 1:
            yield f"  and {len(findings) - 1} more (--all prints them)"
        yield f"  {rule.fix}"
        yield f"  {rule.source}"
    if report.overflow:
        yield f"{report.overflow} more findings in {place} are not listed"
