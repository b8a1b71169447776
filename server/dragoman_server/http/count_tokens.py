"""Input tokens without an answer: the upstream's own count where it has one, else an estimate.

Strategy: an upstream that counts is asked, in its own protocol if that is another one. An estimate is always marked
by the header `dragoman-estimate: true`. It is counted from what the client sent, tools and images and all. A count is
no request that matters to an account: it has a time limit of its own, and when the upstream cannot count just now, an
estimate is better than an error.
"""

from dataclasses import replace

import anyio
import msgspec
from starlette.routing import BaseRoute, Route

from dragoman import RemoteProtocolError, estimate_tokens, peek
from dragoman.codec import ProtocolSpec, TokenCount
from dragoman.jsontext import JSONObject, decode_object, encode
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.gateway import Gateway
from dragoman_server.headers import HeaderList
from dragoman_server.http.endpoint import BaseEndpoint, ClientRequest, ProtocolEndpoint
from dragoman_server.keys import make_signer
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.plan import Destination, Plan
from dragoman_server.replies import Reply
from dragoman_server.responses.service import StoredResponseService

# Clients ask for dozens of counts when they start, and show nothing until they have them.
COUNT_TIMEOUT_S = 10.0

ESTIMATE_HEADERS: HeaderList = [("dragoman-estimate", "true")]


def counting_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return one path for each protocol that has one."""
    return [
        Route(
            spec.endpoints[0].path + spec.token_count.path,
            CountEndpoint(gateway, spec, spec.token_count),
            methods=["POST"],
        )
        for spec in gateway.protocols.values()
        if spec.token_count is not None
    ]


class CountEndpoint(BaseEndpoint):
    """POST /v1/messages/count_tokens and POST /v1/responses/input_tokens."""

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec, form: TokenCount) -> None:
        super().__init__(gateway, protocol)
        self._form = form
        self._asking = ProtocolEndpoint(gateway, protocol, protocol.endpoints[0])
        self._stored = StoredResponseService(gateway.responses)
        self._sealer = make_signer(gateway.settings.server.secret)

    async def serve(self, call: ClientRequest) -> None:
        body = await call.body()
        request_head = peek(body)
        await self.admit(call, request_head.model, counts=False)
        goal = self.destination(request_head.model)
        _note(call.record, request_head.model, goal)
        unknown = None
        if self.protocol.stored_responses:
            expanded = await self._stored.expand(
                body, request_head, goal, store_response=False, now=call.now, owner=call.owner
            )
            body, unknown = expanded.body, expanded.unresolved
        form = goal.upstream.token_count if goal.settings.counts_tokens else None
        if form is not None:
            counted = await self._ask(call, body, goal, form)
            if call.record.outcome == "client_left":
                return
            if counted is not None:
                await call.respond(counted)
                return
        if unknown is not None:
            raise unknown if form is None else _unable(call.record)
        tokens = self._estimate(body)
        call.record.input_tokens, call.record.estimated = tokens, True
        await call.respond_json({**self._form.constant, "input_tokens": tokens}, ESTIMATE_HEADERS)

    async def _ask(
        self, call: ClientRequest, body: bytes, goal: Destination, form: TokenCount
    ) -> Reply | None:
        """What the upstream says, None when it cannot say now. form: the upstream's.

        Of a translated request, a refusal is no concern of the client: the upstream refused what we made.
        """
        target = capabilities_for(
            self.gateway.settings, goal.settings, goal.upstream_model, goal.upstream.name
        )
        relayed = goal.upstream.name == self.protocol.name and target.relay == "exact"
        plan = self._asking.plan(call, body if relayed else encode(self._complete(body)))
        if not relayed:
            plan = _in_form(plan, form)
        plan = plan.at_subpath(form.path, "input_tokens")
        reply = None
        with anyio.move_on_after(COUNT_TIMEOUT_S):
            reply = await self.fetch_reply(plan, call)
        if reply is None:
            if call.record.outcome != "client_left":
                call.record.error = f"the upstream did not count within {COUNT_TIMEOUT_S:g} s"
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
        for name, stand_in in self._form.stand_ins.items():
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


def _in_form(plan: Plan, form: TokenCount) -> Plan:
    """A translated request for an answer as one for a count, in the upstream's protocol on both sides."""
    asked = decode_object(plan.translated.body, "the translated request")
    body = encode({name: value for name, value in asked.items() if name in form.fields})
    translated = msgspec.structs.replace(plan.translated, body=body, fan_out=1)
    return replace(plan, client=plan.upstream, translated=translated, fallbacks=(), unsigned=None)


def _unable(record: RequestRecord) -> RemoteProtocolError:
    return RemoteProtocolError(
        f'upstream "{record.upstream}" alone knows the conversation, and it cannot count at the moment',
        status=503,
    )


def _note(record: RequestRecord, model: str, goal: Destination) -> None:
    record.model = model
    record.stream = False
    record.upstream = goal.settings.name
    record.upstream_protocol = goal.upstream.name
    record.upstream_model = goal.upstream_model
