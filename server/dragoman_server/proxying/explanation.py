"""Explain what would happen to a request: its routes, the upstreams' capabilities, the bodies sent, the losses.

The gateway's own planner does all of it, and nothing is sent. `http.explanation` finds the planner for a path.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSON, decode
from dragoman_server.capabilities.cloud_apis import cloud_api_of
from dragoman_server.capabilities.resolve import KnownCapability, known_capabilities
from dragoman_server.hosts import HostError, UpstreamCall, add_key, host_of
from dragoman_server.hosts.credentials import authorize_cloud_call
from dragoman_server.models.routes import deciding_upstream
from dragoman_server.policy.attempts import Account, Attempts, Offer, Selection, UpstreamAccounts
from dragoman_server.proxying.destinations import Destination
from dragoman_server.proxying.plan import Planner
from dragoman_server.settings import AccountSettings, ClientKey, Settings
from dragoman_server.wire.headers import HeaderList, media_type, with_key

# The id and the time of every explanation: the same request gives the same text.
EXPLAINED_ID = "0" * 32
EXPLAINED_AT = 0
# How hosts authorize calls of an account with a key.
_BY_KEY = (add_key, authorize_cloud_call)


class ExplainedRequest(msgspec.Struct, frozen=True):
    """What one upstream of the chain would get.

    Attributes:
        target: `upstream/model`, or the upstream of a request that names no model.
        rule: The rule that has led there.
        protocol: The protocol that is spoken there.
        mode: "relayed", "rewritten" or "translated".
        accounts: Its accounts, in the order in which they are tried while nothing has failed.
        selection: How that order comes about.
        method: "POST", but for other endpoints.
        headers: The headers, with masked secrets.
        times: How often it is sent, see TranslatedRequest.fan_out.
        losses: Code, place and sentence of each.
    """

    target: str
    rule: str
    protocol: str
    mode: str
    accounts: tuple[str, ...]
    selection: str
    capabilities: tuple[KnownCapability, ...]
    method: str
    url: str
    headers: HeaderList
    body: bytes
    times: int
    losses: tuple[tuple[str, str, str], ...]
    more_losses: int


class ExplainedRefusal(msgspec.Struct, frozen=True):
    """What the client would get instead, or why an upstream of the chain is skipped.

    Attributes:
        target: The upstream, "" if the whole request is refused.
    """

    target: str
    status: int
    message: str
    path: str


class Explanation(msgspec.Struct, frozen=True):
    """What would become of a request: the upstreams in the order in which they are tried, none if it needs none.

    Attributes:
        notes: What may differ.
    """

    model: str
    protocol: str
    steps: tuple[ExplainedRequest | ExplainedRefusal, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """No upstream can take the request."""
        return bool(self.steps) and all(isinstance(step, ExplainedRefusal) for step in self.steps)


def explain_chain(planner: Planner, chain: Sequence[Destination], *notes: str) -> Explanation:
    """Explain where a planned request goes, and what may differ."""
    settings = planner.settings
    steps = tuple([explain_plan(settings, planner, destination) for destination in chain])
    notes = (*notes, *_notes(settings, chain, planner.client_key))
    return Explanation(chain[0].model, planner.client.name, steps, notes)


def explain_plan(
    settings: Settings, planner: Planner, to: Destination
) -> ExplainedRequest | ExplainedRefusal:
    """Explain what one upstream would get."""
    try:
        plan = planner.plan(to)
    except (RemoteProtocolError, RequestRefused) as error:
        return refusal(to.target, error)
    fit, call = host_of(to.settings).fit, plan.call
    try:
        call = call if fit is None else fit(call, to.settings)
    except HostError as error:
        return ExplainedRefusal(to.target, 502, str(error), "")
    known = known_capabilities(settings, to.settings, to.upstream_model, to.upstream)
    return ExplainedRequest(
        target=to.target.removesuffix("/"),  # it names no model
        rule=to.rule,
        protocol=to.upstream.name,
        mode=plan.mode,
        accounts=_order(to),
        selection=to.settings.selection,
        capabilities=tuple([known[name] for name in sorted(known)]),
        method=call.method,
        url=settings.mask(call.url),
        headers=_masked(settings, to, call, to.accounts[0] if to.accounts else None),
        body=call.held,
        times=plan.fan_out,
        losses=tuple((loss.code.value, loss.path, loss.detail) for loss in plan.losses),
        more_losses=plan.losses.overflow,
    )


def refusal(target: str, error: RemoteProtocolError | RequestRefused) -> ExplainedRefusal:
    """Explain why a request is refused. target: "" if it is by the gateway."""
    return ExplainedRefusal(target, error.status, error.message, error.path)


def _order(to: Destination) -> tuple[str, ...]:
    """Return the order in which the gateway's policy offers accounts of which none has been used."""
    accounts = tuple(Account(account.id, float(account.weight)) for account in to.accounts)
    step = Attempts([UpstreamAccounts(accounts, Selection(to.settings.selection))]).next({}, now=0.0)
    return step.accounts if isinstance(step, Offer) else ()


def _masked(
    settings: Settings, to: Destination, call: UpstreamCall, account: AccountSettings | None
) -> HeaderList:
    """Return the headers as they would be sent with an account, with masked secrets.

    Without what a host makes of the account for each call, such as a signature.
    """
    secret = {name.lower(): str(value) for name, value in to.settings.headers.items()}
    headers = [(name, secret.get(name, settings.mask(value))) for name, value in call.headers]
    if account is None or account.api_key is None or host_of(to.settings).authorize not in _BY_KEY:
        return headers
    key, api = account.api_key.reveal(), cloud_api_of(to.settings)
    return [
        (name, value.replace(key, str(account.api_key)))
        for name, value in with_key(
            headers, to.settings, to.upstream, account.api_key, api.key_headers if api else ()
        )
    ]


def _notes(settings: Settings, chain: Sequence[Destination], client_key: ClientKey | None) -> Iterator[str]:
    first = chain[0]
    listing = deciding_upstream(settings, first.model) if first.model else None
    if listing is not None:
        yield (
            f"the gateway looks into the models that {listing.name} lists, which are not requested here: "
            "another model may be used"
        )
    if first.advice:
        yield first.advice
    if any(len(destination.accounts) > 1 for destination in chain):
        yield "accounts that cool down, are disabled or have no room are skipped, and a conversation may stay with one"
    counted = [holder.label for holder in client_key.holders if holder.has_limits] if client_key else []
    if counted:
        yield f"it counts for the limits of the {' and the '.join(counted)}, which may refuse it"


def shown_body(step: ExplainedRequest) -> JSON:
    """Return the value of a body; of one that is not JSON what it is, None if there is none."""
    kind = media_type(step.headers)
    if kind == "application/json" and step.body:
        with suppress(RemoteProtocolError):  # nothing reads those that are relayed as they are
            return decode(step.body)
    return f"{kind}, {len(step.body)} bytes" if step.body else None


def as_builtins(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as values for JSON. Bodies are JSON already, but for forms and files."""
    steps = [
        {**msgspec.to_builtins(step), "body": shown_body(step)}
        if isinstance(step, ExplainedRequest)
        else msgspec.to_builtins(step)
        for step in explanation.steps
    ]
    return {
        "model": explanation.model,
        "protocol": explanation.protocol,
        "upstreams": steps,
        "notes": list(explanation.notes),
    }
