"""Input tokens without an answer: the upstream's own count where it has one, else an estimate.

Strategy: an upstream that counts is asked, in its own protocol if that is another one. An estimate is always marked
by the header `dragoman-estimate: true`. It is counted from what the client sent, tools and images and all. A count is
no request that matters to an account: it has a time limit of its own, and when the upstream cannot count just now, an
estimate is better than an error.
"""

from dataclasses import dataclass, replace

import anyio
import msgspec
from starlette.routing import BaseRoute, Route

from dragoman import RemoteProtocolError, estimate_tokens, peek
from dragoman.codec import ProtocolSpec
from dragoman.jsontext import JSONObject, decode_object, encode
from dragoman_server._targets import target_for
from dragoman_server.access import sealer_of
from dragoman_server.endpoint import BaseEndpoint, Call, ProtocolEndpoint
from dragoman_server.gateway import Gateway
from dragoman_server.headers import HeaderList
from dragoman_server.log import RequestRecord
from dragoman_server.plan import Destination, Plan
from dragoman_server.replies import Reply
from dragoman_server.settings import ANTHROPIC_MESSAGES, OPENAI_RESPONSES
from dragoman_server.stored_responses import StoredResponses

# Clients ask for dozens of counts when they start, and show nothing until they have them.
COUNT_S = 10.0

ESTIMATE: HeaderList = [("dragoman-estimate", "true")]


@dataclass(frozen=True, slots=True)
class Form:
    """How counts are asked for and told in one protocol.

    suffix: of the path, behind the one where answers are made; the upstream's is the same.
    missing: what requests for an answer must have and these need not.
    constant: what the answer says beside the figure.
    fields: those of requests for an answer that these have as well. Others are an error to the vendors' servers.
    """

    suffix: str
    missing: JSONObject
    constant: JSONObject
    fields: frozenset[str]


FORMS = {
    ANTHROPIC_MESSAGES: Form(
        "/count_tokens",
        # So large that nothing has to be fitted to it, which would be told as a loss.
        {"max_tokens": 128_000},
        {},
        frozenset(
            (
                "model",
                "messages",
                "system",
                "tools",
                "tool_choice",
                "thinking",
                "output_config",
                "cache_control",
                "mcp_servers",
                "context_management",
            )
        ),
    ),
    OPENAI_RESPONSES: Form(
        "/input_tokens",
        {"input": []},
        {"object": "response.input_tokens"},
        frozenset(
            (
                "model",
                "input",
                "instructions",
                "tools",
                "tool_choice",
                "parallel_tool_calls",
                "reasoning",
                "text",
                "truncation",
            )
        ),
    ),
}


def counting_routes(gateway: Gateway) -> list[BaseRoute]:
    """One path for each protocol that has one."""
    return [
        Route(
            gateway.protocols[name].endpoints[0].path + form.suffix,
            CountEndpoint(gateway, gateway.protocols[name], form),
            methods=["POST"],
        )
        for name, form in FORMS.items()
        if name in gateway.protocols
    ]


class CountEndpoint(BaseEndpoint):
    """POST /v1/messages/count_tokens and POST /v1/responses/input_tokens."""

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec, form: Form) -> None:
        super().__init__(gateway, protocol)
        self._form = form
        self._asking = ProtocolEndpoint(gateway, protocol, protocol.endpoints[0])
        self._stored = StoredResponses(gateway.responses)
        self._sealer = sealer_of(gateway.settings.server.secret)

    async def serve(self, call: Call) -> None:
        body = await call.body()
        peeked = peek(body)
        await self.admit(call, peeked.model, counts=False)
        goal = self.destination(peeked.model)
        _note(call.record, peeked.model, goal)
        unknown = None
        if self.protocol.name == OPENAI_RESPONSES:
            expanded = await self._stored.expand(
                body, peeked, goal, keep=False, now=call.now, owner=call.owner
            )
            body, unknown = expanded.body, expanded.unknown
        form = FORMS.get(goal.upstream.name) if goal.settings.counts_tokens else None
        if form is not None:
            counted = await self._ask(call, body, goal, form)
            if call.record.outcome == "client_left":
                return
            if counted is not None:
                await call.reply(counted)
                return
        if unknown is not None:
            raise unknown if form is None else _unable(call.record)
        tokens = self._estimate(body)
        call.record.input_tokens, call.record.estimated = tokens, True
        await call.answer({**self._form.constant, "input_tokens": tokens}, ESTIMATE)

    async def _ask(self, call: Call, body: bytes, goal: Destination, form: Form) -> Reply | None:
        """What the upstream says, None when it cannot say now. form: the upstream's.

        Of a translated request, a refusal is no concern of the client: the upstream refused what we made.
        """
        target = target_for(self.gateway.settings, goal.settings, goal.upstream_model, goal.upstream.name)
        relayed = FORMS[self.protocol.name] is form and target.relay == "exact"
        plan = self._asking.plan(call, body if relayed else encode(self._complete(body)))
        if not relayed:
            plan = _in_form(plan, form)
        plan = plan.below(form.suffix, "input_tokens")
        reply = None
        with anyio.move_on_after(COUNT_S):
            reply = await self.whole_reply(plan, call)
        if reply is None:
            if call.record.outcome != "client_left":
                call.record.error = f"the upstream did not count within {COUNT_S:g} s"
            return None
        if reply.status == 200:
            tokens = decode_object(reply.body, "the count").get("input_tokens")
            if type(tokens) is not int:
                call.record.error = "the upstream's answer is no count"
                return None
            call.record.input_tokens = tokens
            if not relayed:
                reply = replace(reply, body=encode({**self._form.constant, "input_tokens": tokens}))
            return reply
        return reply if relayed and reply.status < 500 else None

    def _complete(self, body: bytes) -> JSONObject:
        """What could be a request for an answer, too."""
        value = decode_object(body, "the request body")
        for name, stand_in in self._form.missing.items():
            if value.get(name) is None:
                value[name] = stand_in
        return value

    def _estimate(self, body: bytes) -> int:
        """Raises RemoteProtocolError for a request that could not be answered either."""
        value = self._complete(body)
        try:
            return estimate_tokens(self.protocol.read_request(value, self._sealer))
        except RecursionError:
            raise RemoteProtocolError("the request body is nested too deep") from None


def _in_form(plan: Plan, form: Form) -> Plan:
    """A translated request for an answer as one for a count, in the upstream's protocol on both sides."""
    asked = decode_object(plan.translated.body, "the translated request")
    body = encode({name: value for name, value in asked.items() if name in form.fields})
    translated = msgspec.structs.replace(plan.translated, body=body, answers=1)
    return replace(plan, client=plan.upstream, translated=translated, later=(), unsigned=None)


def _unable(record: RequestRecord) -> RemoteProtocolError:
    return RemoteProtocolError(
        f'upstream "{record.upstream}" alone knows the conversation, and it cannot count at the moment',
        status_hint=503,
    )


def _note(record: RequestRecord, model: str, goal: Destination) -> None:
    record.model = model
    record.stream = False
    record.upstream = goal.settings.name
    record.upstream_protocol = goal.upstream.name
    record.upstream_model = goal.upstream_model
