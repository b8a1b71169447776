"""The context of one pass, from the toy protocol to a protocol of another name unless a test says else; one stage."""

from collections.abc import Iterable
from typing import Any

import msgspec
from core.toy_protocol import toy

from dragoman._ir.events import Event
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._transforms.content import fit_cache_marks, fit_media
from dragoman._transforms.message_members import fit_message_members
from dragoman._transforms.pass_context import PassContext, find_contents
from dragoman._transforms.pipeline import Stage
from dragoman._transforms.unsupported import fit_tool_settings
from dragoman._wire.json import JSONObject
from dragoman.codec import Capabilities, ToolLimits, UpstreamSpec
from dragoman.protocols import PROTOCOLS

CLIENT, UPSTREAM = toy(), toy("another")


def pass_context(
    request: Request,
    ledger: Ledger | None = None,
    capabilities: Capabilities = Capabilities(),
    *,
    limits: ToolLimits | None = None,
    **fields: Any,
) -> PassContext:
    """Return the context for a pass over `request`. limits: of the upstream. fields: others of PassContext."""
    fields = {"client": CLIENT, "upstream": UPSTREAM, **fields}
    if limits is not None:
        fields["upstream"] = msgspec.structs.replace(fields["upstream"], tool_limits=limits)
    ledger = Ledger() if ledger is None else ledger
    contents = find_contents(request.messages)
    return PassContext(
        capabilities=capabilities, ledger=ledger, received=request, contents=contents, **fields
    )


def through(stage: Stage, events: Iterable[Event]) -> list[Event]:
    """Return what becomes of events: the stage gets those of its kinds, as in a pipeline."""
    return [out for each in events for out in (stage.send(each) if type(each) in stage.kinds else (each,))]


def fit_and_write(
    spec: UpstreamSpec, request: Request, capabilities: Capabilities, ledger: Ledger
) -> JSONObject:
    """Return what the upstream's writer makes of a request whose content the passes have fitted."""
    client = PROTOCOLS.get(request.protocol, CLIENT)
    context = pass_context(
        request, ledger, capabilities, client=client, upstream=spec, rewritten=bool(request.native)
    )
    for apply_pass in (fit_message_members, fit_media, fit_cache_marks, fit_tool_settings):
        request = apply_pass(request, context)
        context.contents = find_contents(request.messages)
    return spec.write_request(request, capabilities, ledger)
