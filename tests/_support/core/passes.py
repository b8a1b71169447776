"""The context of one pass: from the toy protocol to a protocol of another name, unless a test says else."""

from typing import Any

import msgspec
from core.toy_protocol import toy

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._transforms.pass_context import PassContext
from dragoman.codec import Capabilities, ToolLimits

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
    return PassContext(capabilities=capabilities, ledger=ledger, received=request, **fields)
