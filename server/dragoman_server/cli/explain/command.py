"""`dragoman explain`: what the gateway would do with a request, without sending it."""

import json
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import click

from dragoman import PROTOCOLS
from dragoman.jsontext import JSON
from dragoman_server.capabilities.provider import MESSAGES
from dragoman_server.cli.inputs import file_argument, read_document
from dragoman_server.cli.options import FAILURE, UNBOUND, USAGE_ERROR, config_option, exit_with, load_or_exit
from dragoman_server.settings import ClientKey, Settings

if TYPE_CHECKING:
    from dragoman_server.proxying.explanation import ExplainedRefusal, ExplainedRequest, Explanation

# The length of a shown string: images are megabytes of base64.
_SHOWN_CHARACTERS = 500


@click.command(
    short_help="Explain what the gateway would do with a request.",
    params=[
        file_argument,
        config_option,
        click.Option(
            ["--method"],
            type=click.Choice(["POST", "PATCH", "GET", "DELETE"]),
            default="POST",
            show_default=True,
            help="the request's method; GET and DELETE have no body",
        ),
        click.Option(
            ["--path"],
            default=PROTOCOLS[MESSAGES].endpoints[0].path,
            show_default=True,
            metavar="PATH",
            help="where the request comes in, with its query if it has one",
        ),
        click.Option(
            ["--header", "header_lines"],
            multiple=True,
            metavar="'NAME: VALUE'",
            help="a header of the client; may be repeated",
        ),
        click.Option(
            ["--key", "key_name"],
            metavar="NAME",
            help="the name of the client key that the request comes with",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON, with whole bodies"),
    ],
)
def explain(
    file: IO[bytes],
    config_file: str | None,
    method: str,
    path: str,
    header_lines: tuple[str, ...],
    key_name: str | None,
    as_json: bool,
) -> None:
    """Explain what the gateway would do with a request.

    FILE, or stdin, is its body. Nothing is sent.

    Prints where its model leads and by which rule, each upstream in the order in which they are tried, its accounts,
    what is known about the model there and from which source, the request as it would be sent with masked secrets, and
    what would be lost. With --key NAME also what that key and its group may use.

    Exit codes: 0 if it would be sent, 1 if the gateway would refuse it, 2 if the configuration or the command line is
    wrong.
    """
    # They take a while to import.
    from dragoman_server.http.explanation import NoEndpoint, explained
    from dragoman_server.proxying.explanation import as_builtins
    from dragoman_server.relayed.table import SENDING

    settings = load_or_exit(config_file, UNBOUND).settings
    key = None if key_name is None else _key(settings, key_name)
    headers = dict(_headers(header_lines))
    body = read_document(file) if method in SENDING else b""
    try:
        explanation = explained(settings, method, path, headers, body, key)
    except NoEndpoint as error:
        exit_with(USAGE_ERROR, str(error))
    if as_json:
        click.echo(json.dumps(as_builtins(explanation)))
    else:
        for line in _lines(explanation):
            click.echo(line)
    if explanation.is_refused:
        sys.exit(FAILURE)


def _key(settings: Settings, name: str) -> ClientKey:
    from dragoman_server.cli.stores import keys_or_exit  # it takes a while to import

    try:
        found = next((key for key in keys_or_exit(settings) if key.name == name), None)
        if found is None:
            exit_with(USAGE_ERROR, f"there is no key named {name!a}")
        return found.in_group_of(settings.groups_by_name)
    except ValueError as error:
        exit_with(USAGE_ERROR, str(error))


def _headers(lines: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter("write NAME: VALUE", param_hint="--header")
        yield name.strip().lower(), value.strip()


def _lines(explanation: "Explanation") -> Iterator[str]:
    from dragoman_server.proxying.explanation import ExplainedRefusal

    if explanation.model:
        yield f"model {explanation.model}, requested in {explanation.protocol}"
    for number, step in enumerate(explanation.steps):
        if number:
            yield ""
        if isinstance(step, ExplainedRefusal):
            yield from _refusal_lines(step)
        else:
            yield from _step_lines(step, is_first=number == 0)
    for note in explanation.notes:
        yield ""
        yield f"note: {note}"


def _refusal_lines(step: "ExplainedRefusal") -> Iterator[str]:
    where = f" (at {step.path})" if step.path else ""
    who = f"{step.target} cannot take it" if step.target else "the gateway refuses it"
    yield f"{who}: status {step.status}: {step.message}{where}"


def _step_lines(step: "ExplainedRequest", *, is_first: bool) -> Iterator[str]:
    from dragoman_server.proxying.explanation import shown_body

    yield f"{'goes to' if is_first else 'if that fails, goes to'} {step.target} ({step.rule})"
    yield f"  {step.mode} to {step.protocol}"
    yield f"  accounts ({step.selection}): {', '.join(step.accounts)}"
    unused = ", which a relayed request is not fitted to" if step.mode == "relayed" else ""
    yield f"  known about the model{unused}:" if step.capabilities else "  nothing is known about the model"
    for capability in step.capabilities:
        yield f"    {capability.name} = {capability.text}    ({capability.source})"
    yield "" if step.times == 1 else f"  it is sent {step.times} times, once for each choice"
    yield f"{step.method} {step.url}"
    yield from (f"{name}: {value}" for name, value in step.headers)
    yield ""
    if (body := shown_body(step)) is not None:
        text = body if isinstance(body, str) else json.dumps(_shortened(body), indent=2, ensure_ascii=False)
        yield from (text, "")
    yield f"lost: {'nothing' if not step.losses else ''}".rstrip()
    for code, path, detail in step.losses:
        yield f"  {code} {path or '/'}: {detail}"
    if step.more_losses:
        yield f"  and {step.more_losses} more"


def _shortened(value: JSON) -> JSON:
    """Return a value with its long strings cut."""
    if isinstance(value, dict):
        return {name: _shortened(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_shortened(element) for element in value]
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]}... ({len(value) - _SHOWN_CHARACTERS} more characters)"
    return value
