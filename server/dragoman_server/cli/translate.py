"""`dragoman translate`: one request, response or stream, from one protocol to another, without a gateway."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import IO

import click

from dragoman import (
    NEED_DATA,
    EventReader,
    Ledger,
    Relay,
    RemoteProtocolError,
    RequestRefused,
    RequestTranslator,
    ResponseTranslator,
    WireError,
    peek,
    translate_error,
)
from dragoman.codec import ProtocolSpec, ResponseContext, UpstreamSpec
from dragoman.document import Request
from dragoman.events import Started
from dragoman.jsontext import decode_object
from dragoman_server.cli.inputs import (
    PROTOCOL_NAMES,
    PROTOCOLS_HELP,
    Kind,
    begins_stream,
    file_argument,
    kind_of_document,
    print_bytes,
    print_losses,
    protocol_choice,
    read_document,
    read_events,
    read_pieces,
)
from dragoman_server.cli.options import FAILURE, exit_with

# The response to each of several choices (`n`) is translated by itself, so here their number does not matter.
_MAX_FAN_OUT = 1_000_000

# The status of an error body that is not accompanied by one.
_SOME_ERROR_STATUS = 400


@click.command(
    params=[
        file_argument,
        click.Option(
            ["--from", "source"],
            type=protocol_choice,
            required=True,
            metavar="PROTOCOL",
            help=f"the protocol of FILE: {PROTOCOLS_HELP}",
        ),
        click.Option(
            ["--to", "target"],
            type=protocol_choice,
            required=True,
            metavar="PROTOCOL",
            help="the protocol to print",
        ),
        click.Option(
            ["--kind"],
            type=click.Choice([kind.value for kind in Kind]),
            help="what FILE is; by default its content decides",
        ),
        click.Option(["--model"], metavar="NAME", help="the model to request, or to report in a response"),
        click.Option(
            ["--request", "request_file"],
            type=click.File("rb"),
            metavar="FILE",
            help="the client's request, which its response may depend on",
        ),
        click.Option(
            ["--status"],
            type=click.IntRange(400, 599),
            default=_SOME_ERROR_STATUS,
            show_default=True,
            help="the HTTP status of an error response",
        ),
        click.Option(["--strict"], is_flag=True, help="exit with 1 if something was lost"),
        click.Option(["--json", "as_json"], is_flag=True, help="print each loss as a line of JSON"),
    ]
)
def translate(
    file: IO[bytes],
    source: str,
    target: str,
    kind: str | None,
    model: str | None,
    request_file: IO[bytes] | None,
    status: int,
    strict: bool,
    as_json: bool,
) -> None:
    """Translate FILE, or stdin, from one protocol to another.

    FILE is a request, a whole response, an error response or a stream; a stream is translated as it arrives. The result
    goes to stdout; losses go to stderr, one line each, with its code and its place in FILE.

    A request goes from a client to an upstream, a response the other way. Nothing is sent anywhere.

    Exit codes: 0 if it was translated, 1 if it could not be, if the response had failed, or with --strict if
    something was lost; 2 if the command line is wrong.
    """
    try:
        found, pieces = _read(file, kind, PROTOCOL_NAMES[source])
        if found is Kind.REQUEST:
            client, upstream = PROTOCOL_NAMES[source], _upstream(target, "--to")
            losses, error = _translate_request(b"".join(pieces), client, upstream, model), None
        else:
            client, upstream = PROTOCOL_NAMES[target], _upstream(source, "--from")
            pieces, reported_model = _reported_model(pieces, upstream, streams=found is Kind.STREAM)
            model = model or reported_model
            context = _context(client, upstream, request_file, model, streams=found is Kind.STREAM)
            losses, error = _translate_response(pieces, upstream, client, context, status)
    except (RemoteProtocolError, RequestRefused) as refusal:
        where = f" (at {refusal.path})" if refusal.path else ""
        exit_with(FAILURE, f"{refusal.message}{where}")
    print_losses(losses, as_json=as_json)
    if error is not None:
        exit_with(FAILURE, f"the response failed: {error.message}")
    if strict and len(losses):
        sys.exit(FAILURE)


def _read(file: IO[bytes], kind: str | None, source: ProtocolSpec) -> tuple[Kind, Iterator[bytes]]:
    """Return what a file is, and its bytes as they arrive. They decide if `kind` does not."""
    head, pieces = b"", read_pieces(file)
    if kind is not None:
        return Kind(kind), read_events(pieces) if kind == Kind.STREAM.value else pieces
    for piece in pieces:
        head += piece
        streams = begins_stream(head)
        if streams:
            return Kind.STREAM, read_events(chain((head,), pieces))
        if streams is False:
            break
    body = head + b"".join(pieces)
    return kind_of_document(body, source), iter((body,))


def _upstream(name: str, option: str) -> UpstreamSpec:
    spec = PROTOCOL_NAMES[name]
    if isinstance(spec, UpstreamSpec):
        return spec
    raise click.BadParameter(f"no upstream speaks {spec.name}", param_hint=option)


def _translate_request(
    body: bytes, client: ProtocolSpec, upstream: UpstreamSpec, model: str | None
) -> Ledger:
    translator = RequestTranslator(client=client, upstream=upstream, max_fan_out=_MAX_FAN_OUT)
    translated = translator.translate(body, model=model)
    print_bytes(translated.body.rstrip(b"\n") + b"\n")
    if translated.fan_out > 1:
        click.echo(f"note: the gateway sends this {translated.fan_out} times, once for each choice", err=True)
    return translated.losses


def _reported_model(
    pieces: Iterator[bytes], upstream: UpstreamSpec, *, streams: bool
) -> tuple[Iterator[bytes], str]:
    """Return the pieces of a response again, and the model that it reports at its beginning."""
    if not streams:
        body = b"".join(pieces)
        return iter((body,)), peek(body).model
    read, reader = [], EventReader(upstream)
    for piece in pieces:
        read.append(piece)
        reader.receive_data(piece)
        with suppress(RemoteProtocolError):
            if isinstance(event := reader.next_event(), Started):
                return chain(read, pieces), event.model
            if event is NEED_DATA:
                continue
        break
    return chain(read, pieces), ""


def _context(
    client: ProtocolSpec,
    upstream: UpstreamSpec,
    request_file: IO[bytes] | None,
    model: str,
    *,
    streams: bool,
) -> ResponseContext:
    """Return the context of a response. The same input gives the same bytes, so its id and time are constant."""
    if request_file is None:
        request = Request(client.name, model, messages=(), stream=streams, include_usage=True)
        return ResponseContext(request, id="0", now=0, model=model)
    translator = RequestTranslator(client=client, upstream=upstream, max_fan_out=_MAX_FAN_OUT)
    translated = translator.translate(read_document(request_file))
    return translated.response_context(id="0", now=0, model=model)


def _translate_response(
    pieces: Iterator[bytes],
    upstream: UpstreamSpec,
    client: ProtocolSpec,
    context: ResponseContext,
    status: int,
) -> tuple[Ledger, WireError | None]:
    """Print a response for the client. Return the losses, and the error if it failed.

    status: of an error response.
    """
    streams = context.request.stream
    if not streams:
        body = b"".join(pieces)
        if not upstream.is_response(decode_object(body, "the response")):
            _, translated, error = translate_error(status, body, upstream=upstream, client=client)
            print_bytes(translated + b"\n")
            return Ledger(), error
        pieces = iter((body,))
    machine: Relay | ResponseTranslator
    if upstream.name == client.name:
        machine = Relay(protocol=upstream, context=context, streams=streams)
    else:
        machine = ResponseTranslator(
            client=client,
            upstream=upstream,
            context=context,
            upstream_streams=streams,
            client_streams=streams,
        )
    for piece in pieces:
        machine.receive_data(piece)
        print_bytes(machine.data_to_send())
    machine.receive_eof()
    print_bytes(machine.data_to_send() + (b"" if streams else b"\n"))
    return machine.losses, machine.error
