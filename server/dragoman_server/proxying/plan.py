"""What one request will do: pure, from the client's bytes to the upstream's.

Strategy: everything that can be wrong with a request is found here, before any upstream is called: route,
translation, losses. The clock and the random id come in as arguments, so the same input gives the same plan.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

import msgspec

from dragoman import (
    UPSTREAMS,
    FanOut,
    LossPolicy,
    Relay,
    RemoteProtocolError,
    RequestHead,
    RequestRefused,
    RequestTranslator,
    ResponseTranslator,
    TranslatedRequest,
    peek,
)
from dragoman._transforms.reasoning_cache import ReasoningLookup
from dragoman.codec import CheckInput, Endpoint, ProtocolSpec, ResponseContext, UpstreamSpec
from dragoman_server import headers as header_tables
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.keys import make_signer
from dragoman_server.models.routes import (
    NO_LISTED_MODELS,
    ListedModels,
    UnknownModel,
    default_model,
    resolve_chain,
)
from dragoman_server.proxying.affinity import conversation_key
from dragoman_server.proxying.upstream_errors import Scrub
from dragoman_server.settings import AccountSettings, ClientKey, Settings, UpstreamSettings
from dragoman_server.upstream.client import UpstreamTimeouts

# Query parameters that a relay keeps: Anthropic's SDK marks its beta surface with `?beta=true`.
_RELAYED_QUERY = frozenset({"beta=true"})

# What a client may say of losses for one request.
LOSS_POLICY_HEADER = "dragoman-loss-policy"

# Each of several answers (`n`) is a call of its own where the upstream gives one at a time, and each costs its prompt.
MAX_FAN_OUT = 16


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the requests of a client for a model go.

    model: as the client calls it, or the default that stands in. upstream: the protocol that is spoken there.
    accounts: with any of which they can be sent. advice: see Route.
    """

    model: str
    upstream_model: str
    upstream: UpstreamSpec
    settings: UpstreamSettings
    accounts: tuple[AccountSettings, ...]
    advice: str = ""


def find_destinations(
    settings: Settings,
    client: ProtocolSpec,
    model: str,
    upstreams: Mapping[str, UpstreamSpec] = UPSTREAMS,
    listed: ListedModels = NO_LISTED_MODELS,
) -> tuple[Destination, ...]:
    """The chain, the best first. model: as the request names it, "" when it names none. listed: see resolve_chain().

    Raises RemoteProtocolError: 400 when there is no model, 404 for one that leads nowhere.
    """
    model = model or _default_model(settings, client)
    chain = resolve_chain(settings, client.name, model, listed)
    if isinstance(chain, UnknownModel):
        raise RemoteProtocolError(chain.message, status=404, path="/model", code="model_not_found")
    found = []
    for route in chain:
        target = settings.upstream(route.upstream)
        assert target is not None  # resolve_chain() only gives upstreams that exist
        spoken = upstreams[route.upstream_protocol]
        accounts = settings.accounts_of(target)
        found.append(Destination(model, route.upstream_model, spoken, target, accounts, route.advice))
    return tuple(found)


def find_destination(
    settings: Settings,
    client: ProtocolSpec,
    model: str,
    upstreams: Mapping[str, UpstreamSpec] = UPSTREAMS,
    listed: ListedModels = NO_LISTED_MODELS,
) -> Destination:
    """The first of the chain, see find_destinations()."""
    return find_destinations(settings, client, model, upstreams, listed)[0]


@dataclass(frozen=True, slots=True)
class FallbackUpstream:
    """A place in the chain behind the first. make: its plan; RemoteProtocolError where it cannot take the request."""

    settings: UpstreamSettings
    accounts: tuple[AccountSettings, ...]
    make: Callable[[], "Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, translated and addressed to one upstream, and the way to the others of its chain.

    endpoint: where the request came in.
    accounts: with any of which it can be sent. account: the one that its headers speak for, by default the first.
    later: the rest of the chain, in its order.
    conversation: what keeps it with its account, None where nothing needs to.
    streams: the client gets a stream.
    member: what a whole answer must have, None for what its protocol's always have.
    keeps_answer: the whole answer is wanted beside what the client gets, see ResponseTranslator.whole_body().
    check_input: judges what the model writes for tools with a grammar, see ResponseTranslator.
    advice: see Route.
    unsigned: makes the same plan without the reasoning whose signatures the upstream has refused; None where that was
        done. RemoteProtocolError where it may not be left out.
    """

    id: str
    client: ProtocolSpec
    endpoint: Endpoint
    upstream: UpstreamSpec
    settings: UpstreamSettings
    upstream_model: str
    translated: TranslatedRequest
    context: ResponseContext
    url: str
    headers: list[tuple[str, str]] = field(repr=False)  # the upstream's key is among them
    streams: bool
    accounts: tuple[AccountSettings, ...]
    account: AccountSettings
    fallbacks: tuple["FallbackUpstream", ...] = ()
    conversation: str | None = None
    required_member: str | None = None
    store_response: bool = False
    check_input: CheckInput | None = None
    advice: str = ""
    unsigned: Callable[[], "Plan"] | None = None

    @property
    def timeouts(self) -> UpstreamTimeouts:
        own = self.settings
        return UpstreamTimeouts(
            connect_s=own.connect_s, read_s=own.read_s, write_s=own.write_s, pool_s=own.pool_s
        )

    @property
    def proxy(self) -> str | None:
        proxy = self.account.proxy or self.settings.proxy
        return None if proxy is None else proxy.reveal()

    def scrub(self, text: str) -> str:
        """Remove from an upstream's text what neither the client nor the log may show."""
        mask = self.context.mask
        return text if mask is None else mask(text)

    def with_account(self, account: AccountSettings) -> "Plan":
        """The same request with this account of its upstream."""
        if account == self.account:
            return self
        headers = header_tables.with_key(self.headers, self.settings, self.upstream, account.api_key)
        return replace(self, account=account, headers=headers)

    def changed(self, change: Callable[["Plan"], "Plan"]) -> "Plan":
        """The plan with a change that holds for the plans that it leads to as well."""
        later = tuple(replace(each, make=_then(each.make, change)) for each in self.fallbacks)
        unsigned = None if self.unsigned is None else _then(self.unsigned, change)
        return replace(change(self), fallbacks=later, unsigned=unsigned)

    def at_subpath(self, suffix: str, member: str) -> "Plan":
        """The same request to a path below the one where answers are made. It never streams.

        member: what an answer from there always has.
        """
        return self.changed(lambda plan: plan._below(suffix, member))

    def _below(self, suffix: str, member: str) -> "Plan":
        path, mark, query = self.url.partition("?")
        # What comes from there is no answer.
        translated = msgspec.structs.replace(self.translated, relayed=True)
        return replace(
            self,
            url=f"{path}{suffix}{mark}{query}",
            translated=translated,
            streams=False,
            required_member=member,
        )

    def response_machine(self, *, upstream_streams: bool) -> ResponseTranslator | Relay:
        """The machine for the answer. A relay only where both bodies have one form: else it is translated."""
        if self.translated.relayed and upstream_streams == self.streams:
            return Relay(self.upstream, self.context, streams=self.streams, member=self.required_member)
        return ResponseTranslator(
            self.upstream,
            self.client,
            self.context,
            upstream_streams=upstream_streams,
            client_streams=self.streams,
            check_input=self.check_input,
            store_response=self.store_response,
        )

    def fan_out(self) -> FanOut:
        """The machine for an answer with choices that the upstream has to be asked for one by one."""
        return FanOut(
            self.upstream,
            self.client,
            self.context,
            self.translated.fan_out,
            client_streams=self.streams,
            check_input=self.check_input,
            store_response=self.store_response,
        )


def make_plan(
    settings: Settings,
    client: ProtocolSpec,
    headers: Mapping[str, str],
    query: str,
    body: bytes,
    *,
    id: str,
    now: int,
    clock: Callable[[], int] | None = None,
    endpoint: Endpoint | None = None,
    request_head: RequestHead | None = None,
    upstreams: Mapping[str, UpstreamSpec] = UPSTREAMS,
    listed: ListedModels = NO_LISTED_MODELS,
    client_key: ClientKey | None = None,
    reasoning_lookup: ReasoningLookup | None = None,
    check_input: CheckInput | None = None,
) -> Plan:
    """Plan one request. headers: lower-case names. id: letters and digits. now: seconds since the epoch;
    clock: what tells them later.

    endpoint: where it came in, by default the first one of the client's protocol.
    peeked: what peek() gave for this body, for a caller who has looked already.
    upstreams: the protocols that upstreams may speak.
    listed: the models that upstreams list.
    client_key: the one that the request came with.
    recall, check_input: as for the core's translators.

    Raises RemoteProtocolError: 400 for what is wrong with the request, 403 for what its key may not demand, 404
    for a model that leads nowhere.
    """
    request_head = request_head or peek(body)
    chain = find_destinations(settings, client, request_head.model, upstreams, listed)
    endpoint = endpoint or client.endpoints[0]
    streams = endpoint.streams_if(request_head.stream)
    signer = make_signer(settings.server.secret)
    owner = "" if client_key is None else client_key.name
    sticks = any(len(goal.accounts) > 1 and goal.settings.sticky for goal in chain)
    cache_key = cache(lambda: conversation_key(owner, headers, request_head))
    conversation = cache_key() if sticks else None

    def plan_for(goal: Destination, signed_reasoning: bool = True) -> Plan:
        target, upstream = goal.settings, goal.upstream
        translator = RequestTranslator(
            client,
            upstream,
            capabilities=capabilities_for(settings, target, goal.upstream_model, upstream.name),
            policy=_policy(settings, target, client_key, headers.get(LOSS_POLICY_HEADER)),
            signer=signer,
            max_fan_out=MAX_FAN_OUT,
            endpoint=endpoint,
        )
        translated = translator.translate(
            body,
            model=goal.upstream_model,
            request_head=request_head,
            reasoning_lookup=reasoning_lookup,
            cache_key=cache_key,
            signed_reasoning=signed_reasoning,
        )
        url = target.base_url_for(upstream.name, upstreams) + upstream.path
        if (translated.relayed or translated.rewritten) and query in _RELAYED_QUERY:
            url = f"{url}?{query}"
        account = goal.accounts[0]
        return Plan(
            id=id,
            client=client,
            endpoint=endpoint,
            upstream=upstream,
            settings=target,
            upstream_model=goal.upstream_model,
            translated=translated,
            context=translated.response_context(
                id=id,
                now=now,
                model=goal.model,
                signer=signer,
                clock=clock,
                mask=Scrub(settings.mask, target),
            ),
            url=url,
            headers=header_tables.upstream_request_headers(
                target,
                upstream,
                client,
                headers,
                stream=streams,
                needed=translated.headers,
                api_key=account.api_key,
            ),
            streams=streams,
            accounts=goal.accounts,
            account=account,
            conversation=conversation,
            check_input=check_input,
            advice=goal.advice,
        )

    # Not in plan_for(): a function that refers to itself keeps the request's body until the collector comes.
    def with_unsigned(goal: Destination) -> Plan:
        return replace(plan_for(goal), unsigned=partial(plan_for, goal, False))

    refusals: list[RemoteProtocolError | RequestRefused] = []
    for number, goal in enumerate(chain, 1):
        try:
            first = with_unsigned(goal)
        except (RemoteProtocolError, RequestRefused) as error:
            refusals.append(error)
            continue
        later = (
            FallbackUpstream(each.settings, each.accounts, partial(with_unsigned, each))
            for each in chain[number:]
        )
        return replace(first, fallbacks=tuple(later))
    raise refusals[0]


def _then(make: Callable[[], Plan], change: Callable[[Plan], Plan]) -> Callable[[], Plan]:
    return lambda: make().changed(change)


def _default_model(settings: Settings, client: ProtocolSpec) -> str:
    """The model of a request that names none."""
    model = None if client.needs_model else default_model(settings)
    if model is not None:
        return model
    reason = "model is required"
    if not client.needs_model:
        reason = (
            "model is missing, and this gateway has no default: name one, or have server.default_model set"
        )
    raise RemoteProtocolError(reason, path="/model", code="missing_required_parameter")


def _policy(
    settings: Settings, upstream: UpstreamSettings, key: ClientKey | None, asked: str | None
) -> LossPolicy:
    """What to do about losses. A client may always ask for more care; for less, its key must allow it.

    asked: the value of the client's header. Raises RemoteProtocolError.
    """
    own = None if key is None else key.loss_policy
    configured = LossPolicy(own or upstream.loss_policy or settings.server.loss_policy)
    if asked is None:
        return configured
    try:
        wanted = LossPolicy(asked.strip().lower())
    except ValueError:
        values = " or ".join(policy.value for policy in LossPolicy)
        message = f"the header {LOSS_POLICY_HEADER} says {asked[:40]!a}: write {values}"
        raise RemoteProtocolError(message, code="invalid_value") from None
    if (
        wanted is LossPolicy.RECORD
        and configured is LossPolicy.REFUSE
        and not (key is not None and key.may_loosen)
    ):
        message = f"losses are refused here, and {LOSS_POLICY_HEADER}: record is not allowed with this key"
        raise RemoteProtocolError(message, status=403)
    return wanted
