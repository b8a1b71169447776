"""Plan one request: from the client's bytes to the upstream's, without I/O.

Everything that can be wrong with a request is found here, before any upstream is called: route, translation, losses.
The clock and the random id are arguments, so the same input gives the same plan.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar, Protocol

import msgspec

import dragoman
from dragoman.codec import (
    MODEL_IN_PATH,
    SSE,
    Endpoint,
    ProtocolSpec,
    ResponseContext,
    UpstreamSpec,
    fill_path,
)
from dragoman.document import ReasoningLookup, Request
from dragoman_server.capabilities.cloud_apis import CloudApi, cloud_api_of
from dragoman_server.capabilities.resolve import capabilities_for, known_capabilities
from dragoman_server.hosts import UpstreamCall
from dragoman_server.log import DECISIONS, log_decision
from dragoman_server.models.routes import NO_LISTED_MODELS, ListedModels
from dragoman_server.platform.off_loop import INLINE_BYTES, off_loop
from dragoman_server.proxying.affinity import conversation_key
from dragoman_server.proxying.betas import fit_betas, refused_beta
from dragoman_server.proxying.destinations import Destination, at_account, find_destinations
from dragoman_server.proxying.loss_policy import LOSS_POLICY_HEADER, loss_policy
from dragoman_server.proxying.refused_members import (
    REMEMBERED_S,
    RefusedMembers,
    refused_capability,
    refused_member,
)
from dragoman_server.proxying.tool_grammar import InputChecker
from dragoman_server.proxying.upstream_errors import Scrub
from dragoman_server.settings import ClientKey, Settings
from dragoman_server.settings.client_keys import make_signer
from dragoman_server.wire.headers import (
    ESTIMATE_AT_START,
    STREAM_HEADERS,
    HeaderList,
    upstream_request_headers,
)

LOG = logging.getLogger("dragoman.upstream")

# Query parameters that a relay keeps: Anthropic's SDK marks its beta surface with `?beta=true`.
_RELAYED_QUERY = frozenset({"beta=true"})
_NO_MEMBERS = frozenset[str]()  # each call makes another one

# Each of several responses (`n`) is a separate request where the upstream gives one at a time, and each costs its
# prompt.
MAX_FAN_OUT = 16

_REFUSE = dragoman.LossPolicy.REFUSE


class BodyMachine(dragoman.ResponseMachine, Protocol):
    """A machine that takes the bytes of one response."""

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the upstream's body."""


class Plan(msgspec.Struct, frozen=True):
    """The upstream request of one client request, before anything is sent: immutable. The account's key is not in it.

    Attributes:
        id: The request's id, for logs and headers.
        client: The client's protocol.
        endpoint: Where the request came in.
        destination: Where it goes.
        body: The bytes sent there.
        members: The names of its members.
        request: The document that the client's protocol has read. None after released().
        planner: Makes the plans of the fallbacks, and this one again. None if nothing more can be made.
        losses: The parts that the upstream does not get.
        relayed, rewritten, fan_out: See TranslatedRequest.
        context: The context for the response's machine.
        scrub: Removes from the upstream's texts what neither the client nor the log may have.
        base_url: The upstream's URL, without a slash at the end.
        path: The path below it, with its query.
        headers: The headers of the upstream request.
        streams: The client gets a stream.
        conversation: The key by which it stays with its account, None where it need not.
        check_input: Checks what the model writes for tools with a grammar, see ResponseTranslator.
        fallbacks: Where it goes if that fails, the best first.
        required_member: The member that a whole response must have, None for the usual one of its protocol.
        store_response: The complete response is needed besides what the client gets, see
            ResponseTranslator.whole_body().
        is_repeatable: The request may be sent again, although it may have been carried out.
        may_be_elsewhere: Another account may have what this one does not find.
    """

    id: str
    client: ProtocolSpec
    endpoint: Endpoint
    destination: Destination
    body: bytes
    members: frozenset[str]
    request: Request | None
    planner: "Planner | None"
    losses: dragoman.Ledger
    relayed: bool
    rewritten: bool
    fan_out: int
    context: ResponseContext
    scrub: Scrub
    base_url: str
    path: str
    headers: HeaderList
    streams: bool
    conversation: str | None = None
    check_input: InputChecker | None = None
    fallbacks: tuple[Destination, ...] = ()
    required_member: str | None = None
    store_response: bool = False
    is_repeatable: bool = True
    may_be_elsewhere: bool = False

    # A stream can end with an error that its client reads. Otherwise it is cut off.
    ends_with_errors: ClassVar[bool] = True
    # A response may be any bytes, but no page of HTML.
    takes_any_bytes: ClassVar[bool] = False

    @property
    def is_spent(self) -> bool:
        """True if its body cannot be sent any more."""
        return False

    def __repr__(self) -> str:
        return f"<Plan {self.id}>"  # the client's request and the configured headers may be secret

    @property
    def mode(self) -> str:
        """How the request is made: "relayed", "rewritten" or "translated"."""
        return "relayed" if self.relayed else "rewritten" if self.rewritten else "translated"

    def released(self) -> "Plan":
        """Return the plan without the request: nothing is sent again, and a stream may stay open for hours."""
        return msgspec.structs.replace(
            self, body=b"", members=_NO_MEMBERS, headers=[], request=None, planner=None
        )

    @property
    def url(self) -> str:
        return self.base_url + self.path

    @property
    def call(self) -> UpstreamCall:
        """The call to the upstream, without credentials."""
        framing = self.destination.upstream.framing if self.streams else SSE
        return UpstreamCall("POST", self.base_url + self.path, self.headers, self.body, framing)

    def at_path(self, path: str, member: str) -> "Plan":
        """Return the plan with another path than the one that creates responses. It never streams.

        member: the member that every response from there has.
        """
        return msgspec.structs.replace(
            self,
            path=with_query(path, self.path.partition("?")[2]),
            relayed=True,  # there the upstream sends no model response that could be translated
            streams=False,
            required_member=member,
        )

    def stream_head(self, status: int | None, headers: Sequence[tuple[str, str]]) -> tuple[int, HeaderList]:
        """Return status and headers of a stream for the client. Arguments: the upstream's, if it has responded."""
        # The client gets a figure before the upstream has sent one; the true one follows at the end.
        estimates = ESTIMATE_AT_START if self.client.usage_at_start and not self.relayed else []
        return 200, [("content-type", self.endpoint.media_type), *STREAM_HEADERS, *estimates]

    def response_machine(
        self, headers: Sequence[tuple[str, str]] = (), *, upstream_streams: bool
    ) -> BodyMachine:
        """Return the machine that reads the response. headers: the response's.

        It relays only if both sides stream or neither does; otherwise the response is translated.
        """
        if self.relayed and upstream_streams == self.streams:
            return dragoman.Relay(
                protocol=self.destination.upstream,
                context=self.context,
                streams=self.streams,
                member=self.required_member,
                large_bytes=INLINE_BYTES,
            )
        return dragoman.ResponseTranslator(
            client=self.client,
            upstream=self.destination.upstream,
            context=self.context,
            upstream_streams=upstream_streams,
            client_streams=self.streams,
            check_input=self.check_input,
            store_response=self.store_response,
        )

    def fan_out_machine(self) -> dragoman.FanOut:
        """Return the machine for a response whose choices need one upstream request each."""
        return dragoman.FanOut(
            client=self.client,
            upstream=self.destination.upstream,
            context=self.context,
            count=self.fan_out,
            client_streams=self.streams,
            check_input=self.check_input,
            store_response=self.store_response,
        )


# Changes each plan of a request: its first one, and the plans of its fallbacks.
PlanChange = Callable[[Plan], Plan]


class _Common(msgspec.Struct, frozen=True):
    """What the requests have in common that come in at one endpoint, with one loss policy, for one destination."""

    policy: dragoman.LossPolicy
    api: CloudApi | None
    signer: dragoman.Signer
    translator: dragoman.RequestTranslator
    base_url: str
    scrub: Scrub
    # Path and headers with a stream and without, where nothing of the request is in them.
    heads: dict[bool, tuple[str, HeaderList]]


class Planner(msgspec.Struct, eq=False, dict=True, weakref=True):
    """A client's request, with everything that its plans depend on: one plan for each upstream of its chain.

    Attributes:
        client: The client's protocol.
        headers: The headers, with lower-case names.
        query: The query string, without the question mark.
        request_head: From peek() for the body.
        id: Letters and digits.
        now: Seconds since the epoch.
        clock: Returns them later.
        upstreams: The protocols that upstreams may speak.
        listed: The models that upstreams list.
        endpoint: Where the request came in, None for the first one of the client's protocol.
        client_key: The one that the request came with.
        reasoning_lookup, check_input: As for the core's translators.
        change: See PlanChange.
        refused_members: Members that upstreams have refused before, and that are left out.
        chain: Where it may go, the best first; empty for where its model leads.
        account: The id of the account that made what it refers to, which alone has that; "" if none is known.
    """

    settings: Settings
    client: ProtocolSpec
    headers: Mapping[str, str]
    query: str
    body: bytes
    request_head: dragoman.RequestHead
    id: str
    now: int
    clock: Callable[[], int] | None = None
    upstreams: Mapping[str, UpstreamSpec] = msgspec.field(default_factory=lambda: dragoman.UPSTREAMS)
    listed: ListedModels = NO_LISTED_MODELS
    endpoint: Endpoint | None = None
    client_key: ClientKey | None = None
    reasoning_lookup: ReasoningLookup | None = None
    check_input: InputChecker | None = None
    change: PlanChange | None = None
    refused_members: RefusedMembers = msgspec.field(default_factory=RefusedMembers)
    chain: tuple[Destination, ...] = ()
    account: str = ""

    # A conversation stays with its account at one of the upstreams.
    _sticky: bool = False
    _logs: bool = msgspec.field(default_factory=partial(DECISIONS.isEnabledFor, logging.DEBUG))

    def __repr__(self) -> str:
        return f"<Planner {self.id}>"  # the client's headers and body may be secret

    @cached_property
    def _conversation(self) -> str | None:
        owner = "" if self.client_key is None else self.client_key.name
        return conversation_key(owner, self.headers, self.request_head)

    def first(self) -> Plan:
        """Return the plan for the first upstream that can take the request.

        Raises RemoteProtocolError for a faulty request; RequestRefused for what the upstream cannot do
        (400), what its key may not change (403), and a model that no upstream serves (404).
        """
        chain = self.chain = self.chain or find_destinations(
            self.settings, self.client, self.request_head.model, self.upstreams, self.listed
        )
        if self.account:
            chain = self.chain = at_account(chain, self.account) or chain
        for to in chain:
            self._sticky = self._sticky or (len(to.accounts) > 1 and to.settings.sticky)
        if self._logs:
            first, *others = chain
            fallbacks = f"; if that fails, {', then '.join([to.target for to in others])}" if others else ""
            log_decision(self.id, "route: %s -> %s (%s)%s", first.model, first.target, first.rule, fallbacks)
        refusals: list[dragoman.RemoteProtocolError | dragoman.RequestRefused] = []
        for number, destination in enumerate(chain, 1):
            try:
                return self.plan(destination, fallbacks=chain[number:])
            except (dragoman.RemoteProtocolError, dragoman.RequestRefused) as error:
                refusals.append(error)
                log_decision(self.id, "plan: %s cannot take it: %s", destination.target, error)
        raise refusals[0]

    async def plan_off_loop(self, destination: Destination, *, signed_reasoning: bool = True) -> Plan:
        """Return what plan() does, which a large request makes in a thread."""
        make = partial(self.plan, destination, signed_reasoning=signed_reasoning)
        return await off_loop(len(self.body), make)

    def plan(
        self,
        destination: Destination,
        *,
        fallbacks: tuple[Destination, ...] = (),
        signed_reasoning: bool = True,
    ) -> Plan:
        """Return the plan for one upstream. Raises RemoteProtocolError and RequestRefused.

        signed_reasoning: false leaves out the reasoning whose signatures the upstream has refused.
        """
        to = destination
        endpoint = self.endpoint or self.client.endpoints[0]
        streams = endpoint.streams_if(self.request_head.stream)
        refused = self.refused_members.get(to.settings.name, to.upstream_model, self.now)
        common, translated = self._translate(to, endpoint, refused, signed_reasoning)
        # Nothing of the request is in the head of most translated ones.
        varies = bool(translated.headers) or self.client.name == to.upstream.name
        head = None if varies else common.heads.get(streams)
        if head is None:
            head = self._head(to, common.api, translated, refused, stream=streams)
            if not varies:
                common.heads[streams] = head
        plan = Plan(  # by place, because CPython makes a dict of more than 15 names
            self.id,
            self.client,
            endpoint,
            to,
            translated.body,
            translated.members,
            translated.request,
            self if signed_reasoning else None,
            translated.losses,
            translated.relayed,
            translated.rewritten,
            translated.fan_out,
            context=translated.response_context(
                id=self.id,
                now=self.now,
                model=to.model,
                signer=common.signer,
                clock=self.clock,
                mask=common.scrub,
            ),
            scrub=common.scrub,
            base_url=common.base_url,
            path=head[0],
            headers=head[1],
            streams=streams,
            conversation=self._conversation if self._sticky else None,
            check_input=self.check_input if translated.undo.origins else None,  # where the grammars are
            fallbacks=fallbacks,
        )
        if self.change is not None:
            plan = self.change(plan)
        plan.losses.enforce(common.policy)  # with those that only the gateway knows
        if self._logs:
            self._log_plan(plan)
        return plan

    def _head(
        self,
        to: Destination,
        api: CloudApi | None,
        translated: dragoman.TranslatedRequest,
        refused: Collection[str],
        *,
        stream: bool,
    ) -> tuple[str, HeaderList]:
        """Return path and headers of the upstream request, with the betas that it has."""
        path = to.upstream.path_for(to.upstream_model, stream=stream)
        if (translated.relayed or translated.rewritten) and self.query in _RELAYED_QUERY:
            path = with_query(path, self.query)
        headers = upstream_request_headers(
            to.settings, to.upstream, self.client, self.headers, stream=stream, needed=translated.headers
        )
        if lists := to.upstream.list_headers:
            headers = fit_betas(headers, lists, to.settings, api, refused, translated.losses)
        return path, headers

    def learn_refused_member(self, plan: Plan, error: dragoman.WireError) -> bool:
        """Remember the member that the upstream has refused by its name. Return false if there is none to leave out."""
        to = plan.destination
        sent = plan.members - to.upstream.content_members
        member = refused_member(error, sent) or refused_beta(error, plan.headers, to.upstream.list_headers)
        named = refused_capability(error, to.upstream.refusals) if member is None else None
        if named is not None and (not plan.relayed or named in to.upstream.relay_refusals):
            # What is known of the server is not put into doubt by what one client got wrong.
            known = known_capabilities(self.settings, to.settings, to.upstream_model, to.upstream)
            left_out = self.refused_members.get(to.settings.name, to.upstream_model, self.now)
            member = None if named in known or named in left_out else named
        if member is None or not self.refused_members.add(
            to.settings.name, to.upstream_model, member, self.now
        ):
            return False
        LOG.warning("%s has refused %s: it is left out for %d s", to.target, member, REMEMBERED_S)
        return True

    def _log_plan(self, plan: Plan) -> None:
        """Log the request to the upstream and its reasons, with the losses."""
        to = plan.destination
        streams = ", streams" if plan.streams else ""
        text = "plan: %s -> %s at %s, %s%s"
        log_decision(self.id, text, plan.client.name, to.upstream.name, to.target, plan.mode, streams)
        known = known_capabilities(self.settings, to.settings, to.upstream_model, to.upstream)
        values = ", ".join([f"{name}={known[name].text}" for name in sorted(known)])
        log_decision(self.id, "capabilities: %s", values or "the defaults")
        log_losses(self.id, "request", plan.losses)

    def _translate(
        self, to: Destination, endpoint: Endpoint, refused: Sequence[str], signed_reasoning: bool
    ) -> tuple[_Common, dragoman.TranslatedRequest]:
        """Return the translated request, with what it and others have in common. refused: by its upstream, by name."""
        requested = self.headers.get(LOSS_POLICY_HEADER)
        policy = loss_policy(self.settings, to.settings, self.client_key, requested)
        key = id(endpoint), policy is _REFUSE
        common: _Common | None = None if refused else to.common.get(key)
        if common is None:
            common = self._make_common(to, endpoint, policy, refused)
            if not refused:
                to.common[key] = common
        translated = common.translator.translate(
            self.body,
            model=to.upstream_model,
            request_head=self.request_head,
            reasoning_lookup=self.reasoning_lookup,
            cache_key=lambda: self._conversation,
            signed_reasoning=signed_reasoning,
            left_out=(*refused, *common.api.refuses) if common.api else refused,
        )
        return common, translated

    def _make_common(
        self, to: Destination, endpoint: Endpoint, policy: dragoman.LossPolicy, refused: Collection[str]
    ) -> _Common:
        settings, upstream, model = to.settings, to.upstream, to.upstream_model
        signer, api = make_signer(self.settings.server.secret), cloud_api_of(settings)
        if api is not None and api.routes:
            fill_path(MODEL_IN_PATH, model)  # its host puts the model into the path
        capabilities = capabilities_for(self.settings, settings, model, upstream)
        listed = self.listed.get(settings.name, {}).get(model)
        if listed is not None:
            # Settings and the model's family are more exact.
            capabilities = msgspec.structs.replace(
                capabilities,
                max_output_tokens=capabilities.max_output_tokens or listed.largest_limit,
                context_window=capabilities.context_window or listed.context,
            )
        left_out = {*refused, *(api.refuses if api else ())}
        if lacking := left_out & upstream.refusals.keys():
            lost = dict.fromkeys(lacking, False)
            capabilities = msgspec.structs.replace(capabilities, **lost, relay="rewrite")
        translator = dragoman.RequestTranslator(
            client=self.client,
            upstream=upstream,
            capabilities=capabilities,
            policy=policy,
            signer=signer,
            max_fan_out=MAX_FAN_OUT,
            endpoint=endpoint,
        )
        base_url = settings.base_url_for(upstream.name, self.upstreams)
        scrub = Scrub(self.settings.mask, settings, tuple(to.accounts))
        return _Common(policy, api, signer, translator, base_url, scrub, {})


def with_query(path: str, query: str) -> str:
    """Return a path that may have a query with more parameters, "" for none."""
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


def log_losses(id: str, of: str, losses: Iterable[dragoman.Loss]) -> None:
    """Log each loss at level debug. of: where its place is, "request" or "response"."""
    if DECISIONS.isEnabledFor(logging.DEBUG):
        for loss in losses:
            log_decision(
                id, "loss: %s at %s of the %s: %s", loss.code.value, loss.path or "/", of, loss.detail
            )
