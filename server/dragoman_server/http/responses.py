"""The endpoints of the Responses API: create responses that are stored, read, cancel and delete them, and compact a
conversation.

POST /v1/responses inserts what a request refers to, plans it as every other request, and stores the response once it is
complete, before the client gets its end, because the client's next request may refer to it.
"""

import time
from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.routing import BaseRoute

from dragoman import RequestHead, RequestRefused, ResponseTranslator, peek
from dragoman.jsontext import JSONObject, decode, decode_object, encode
from dragoman_server.gateway import Gateway
from dragoman_server.http import background
from dragoman_server.http.endpoint import BaseEndpoint, ProtocolEndpoint, vendors_operation
from dragoman_server.http.operations import VENDORS_OBJECT, ApiOperation, DescribedRoute, MediaType
from dragoman_server.http.request import BOOLEAN, Parameter, Query
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.client_request import SCOPE_TURN, ClientRequest
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.request_handler import StoreResponse
from dragoman_server.responses import conversation
from dragoman_server.responses.recent import Turn
from dragoman_server.responses.service import HOW_TO_ENABLE
from dragoman_server.responses.stores.base import StoredResponse
from dragoman_server.wire.headers import STREAM_HEADERS
from dragoman_server.wire.replies import Reply

# The limit and the default of a page in OpenAI's API reference.
_LIMIT = Parameter("limit", "how many items, 20 by default", (1, 100))
_DEFAULT_ITEMS = 20
_ORDER = Parameter("order", "which items come first; the newest by default", choices=("asc", "desc"))
_AFTER = Parameter("after", "the id of the last item of the page before")
_STREAM = Parameter("stream", "return it as a stream", choices=BOOLEAN)
_STARTING_AFTER = Parameter("starting_after", "the number of the last event that is not needed", (0, 2**53))

_COMPACTION_TRIGGER = b'{"type":"compaction_trigger"}'
_NO_USAGE = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
# Parameters of a request for a response that a request for a summary does not have.
_RESPONSE_ONLY_PARAMS = frozenset(("stream", "stream_options", "store", "background"))


def responses_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return all routes below the one that creates responses, for each protocol whose responses can be stored."""
    routes: list[BaseRoute] = []
    for protocol in gateway.upstreams.values():
        if protocol.stored_responses is not None:
            path, place = protocol.endpoints[0].path, "the id of a stored response"
            stream = MediaType(protocol.endpoints[0].media_type)
            described = partial(ApiOperation, errors=(404,), place=place, protocol=protocol)
            routes += [
                DescribedRoute(
                    f"{path}/compact",
                    CompactEndpoint(gateway, protocol),
                    POST=vendors_operation("Summarize a conversation", protocol, (VENDORS_OBJECT,)),
                ),
                DescribedRoute(
                    f"{path}/{{id}}/input_items",
                    InputItemsEndpoint(gateway, protocol),
                    GET=described(
                        summary="List what the model was given",
                        answers={200: (InputItems,)},
                        parameters=(_LIMIT, _ORDER, _AFTER),
                    ),
                ),
                DescribedRoute(
                    f"{path}/{{id}}/cancel",
                    CancelEndpoint(gateway, protocol),
                    POST=described(
                        summary="Cancel a response that is made in the background",
                        answers={200: (VENDORS_OBJECT,)},
                    ),
                ),
                DescribedRoute(
                    f"{path}/{{id}}",
                    StoredResponseEndpoint(gateway, protocol),
                    GET=described(
                        summary="Return a stored response, or the events of one that is made in the background",
                        answers={200: (VENDORS_OBJECT, stream)},
                        parameters=(_STREAM, _STARTING_AFTER),
                    ),
                    DELETE=described(summary="Delete a stored response", answers={200: (DeletedResponse,)}),
                ),
            ]
    return routes


class DeletedResponse(msgspec.Struct):
    """Says that a response is no longer stored."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputItems(msgspec.Struct):
    """A page of the items that were the model's input."""

    data: Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "array", "items": {"type": "object"}})]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class ResponsesEndpoint(ProtocolEndpoint):
    """POST /v1/responses, also over a WebSocket: create a response, and store it unless `store` is false."""

    async def serve(self, request: ClientRequest) -> Awaitable[object] | None:
        turn: Turn | None = request.scope.get(SCOPE_TURN)
        generates = turn is None or turn.generates
        body, request_head = await self.read(request, counts=generates)
        stored = self.gateway.responses
        options = conversation.read_background(request_head)
        about_stored = options is not None or turn is not None
        if about_stored or await request.off_loop(len(body), stored.applies_to, request_head):
            responding = await self._begin(request, body, request_head, options, turn)
        else:
            responding = self.carry_out(request, await self.plan(request, body, request_head), is_last=True)
        if turn is None:
            return responding
        del body, request_head  # a stream may stay open for hours
        await responding
        turn.completed = request.record.outcome == "completed"
        return None

    async def _begin(
        self,
        request: ClientRequest,
        body: bytes,
        request_head: RequestHead,
        options: JSONObject | None,
        turn: Turn | None,
    ) -> Awaitable[object]:
        """Return what responds to a request that is about stored responses. options: see read_background()."""
        stored = self.gateway.responses
        generates = turn is None or turn.generates
        if options is not None:
            background.check(self.gateway)
        destination = self.destinations(request_head.model)[0]
        expanded = await self.expand(
            request,
            body,
            request_head,
            destination,
            store_response=True,
            background=options is not None,
            turn=turn,
        )
        stores, needs_body = expanded.stored, expanded.conversation is not None
        if expanded.unresolved is not None and not generates:
            raise expanded.unresolved  # no upstream is asked

        def repeating_the_original(plan: Plan) -> Plan:
            # The response repeats the request as the client sent it, not as it was expanded.
            echo = plan.context.echo
            if expanded.previous is not None:
                echo = {**echo, "previous_response_id": expanded.previous}
            context = msgspec.structs.replace(plan.context, echo=echo, stored=stores)
            if options and conversation.have_effect(options):
                plan.losses.dropped(
                    "/background_options", "the gateway makes each response as soon as it can"
                )
            # In the background its last event has all of it.
            return replace(plan, store_response=needs_body and options is None, context=context)

        async def store_response(response: JSONObject, client_left: bool) -> bool:
            if client_left:
                response = conversation.mark_cancelled(response)
            known = expanded
            if request.announced:  # then no upstream knows the client's id of it
                response = {**response, "id": f"resp_{request.record.id}"}
                known = replace(expanded, upstream=None)
            return await stored.put(response, known, int(time.time()), request.owner, turn=turn)

        plan = await self.plan(request, expanded.body, change=repeating_the_original)
        expanded = replace(expanded, body=b"")  # a stream may stay open for hours
        if options is not None:
            return await background.begin(self, request, plan, expanded)
        if not generates:
            return self._warm_up(request, plan, store_response)
        return self.carry_out(
            request, plan, store_response=store_response if needs_body else None, is_last=True
        )

    async def _warm_up(self, request: ClientRequest, plan: Plan, store_response: StoreResponse) -> None:
        """Respond with a response without output, which later requests can continue, and call no upstream."""
        protocol = self.gateway.upstreams[self.protocol.name]
        empty = {
            "id": "",
            "status": "completed",
            "model": plan.context.model,
            "output": [],
            "usage": _NO_USAGE,
        }
        translator = ResponseTranslator(
            client=protocol,
            upstream=protocol,
            context=plan.context,
            upstream_streams=False,
            client_streams=True,
            store_response=True,
        )
        translator.receive_data(encode(empty))
        translator.receive_eof()
        body = translator.whole_body()
        assert body is not None
        await store_response(body, False)
        request.record.stream, request.record.outcome = True, "completed"
        headers = [("content-type", plan.endpoint.media_type), *STREAM_HEADERS]
        await request.respond(Reply(200, headers, translator.data_to_send()))


class StoredResponseBase(BaseEndpoint):
    """Base of the endpoints about one stored response."""

    async def find(self, request: ClientRequest) -> StoredResponse:
        """Return the response that the path names. Raises RemoteProtocolError."""
        id = self.id_of(request)
        found = await self.gateway.responses.get(id, request.now, request.owner)
        if found is None:
            raise self.not_found(id)
        return found

    def id_of(self, request: ClientRequest) -> str:
        """Return the id in the path. Raises RemoteProtocolError where nothing is stored."""
        if self.gateway.responses.store is None:
            raise RequestRefused(
                f"this gateway does not store responses: {HOW_TO_ENABLE} in its configuration",
                code="unsupported_operation",
            )
        return str(request.scope["path_params"]["id"])

    async def respond_with(self, request: ClientRequest, found: StoredResponse) -> None:
        """Send a stored response."""
        body = await off_loop(found.size, lambda: encode(conversation.response_body(found)))
        await request.respond_json(msgspec.Raw(body))

    def not_found(self, id: str) -> RequestRefused:
        """Return the error for an id that is not stored."""
        return RequestRefused(
            f"Response with id '{conversation.printable_id(id)}' not found.",
            status=404,
            code="response_not_found",
        )


class StoredResponseEndpoint(StoredResponseBase):
    """GET and DELETE /v1/responses/{id}: return a stored response, whole or as a stream, or delete it."""

    async def serve(self, request: ClientRequest) -> None:
        if request.scope["method"] == "DELETE":
            await self._delete(request)
            return
        query = Query(request.query)
        if query.boolean(_STREAM):
            after = query.integer(_STARTING_AFTER)
            found = await self.find(request)
            body = await off_loop(len(found.body), decode, found.body)
            if body.get("background") is not True:
                raise RequestRefused(
                    f"Response with id '{found.id}' not found among those that were created with background=true, "
                    "and others cannot be streamed again. Request it without stream.",
                    status=404,
                    path="/stream",
                    code="response_not_found",
                )
            await background.send_events(self, request, found.key, -1 if after is None else after)
        else:
            await self.respond_with(request, await self.find(request))

    async def _delete(self, request: ClientRequest) -> None:
        id = self.id_of(request)
        if not await self.gateway.responses.delete(id, request.owner):
            raise self.not_found(id)
        await request.respond_json(DeletedResponse(id))


class InputItemsEndpoint(StoredResponseBase):
    """GET /v1/responses/{id}/input_items: list the items of the model's input, page by page."""

    async def serve(self, request: ClientRequest) -> None:
        query = Query(request.query)
        limit = query.integer(_LIMIT)
        order = query.choice(_ORDER)
        found = await self.find(request)
        items = list(found.input if order == "asc" else reversed(found.input))
        after = query.place(_AFTER, [item.id for item in items])
        if after is not None:
            items = items[after + 1 :]
        listed = items[: limit or _DEFAULT_ITEMS]
        size = sum([item.size for item in listed])
        page = await off_loop(size, lambda: encode([conversation.item_for_list(item) for item in listed]))
        await request.respond_json(
            InputItems(
                msgspec.Raw(page),
                listed[0].id if listed else None,
                listed[-1].id if listed else None,
                len(listed) < len(items),
            )
        )


class CancelEndpoint(StoredResponseBase):
    """POST /v1/responses/{id}/cancel: end a response that is made in the background, by whichever gateway."""

    async def serve(self, request: ClientRequest) -> None:
        found = await self.find(request)
        if found.lease:
            body = conversation.mark_cancelled(await off_loop(len(found.body), decode, found.body))
            await self.gateway.responses.end(found, body, request.now)
            found = await self.find(request)  # it may have ended before
        body = await off_loop(len(found.body), decode, found.body)
        if body.get("status") != "cancelled" or body.get("background") is not True:
            # In the words of OpenAI's server, because clients match them.
            how = f"{body.get('status')}" if body.get("background") is True else "synchronous"
            article = "an" if how == "incomplete" else "a"
            raise RequestRefused(f"Cannot cancel {article} {how} response.", path="/response_id")
        await self.respond_with(request, found)


class CompactEndpoint(BaseEndpoint):
    """POST /v1/responses/compact: replace a conversation by its user messages and one compaction item."""

    async def serve(self, request: ClientRequest) -> None:
        body, request_head = await self.read(request)
        destination = self.destinations(request_head.model)[0]
        expanded = await self.expand(request, body, request_head, destination, store_response=False)
        if destination.upstream.stored_responses is not None:
            path = f"{destination.upstream.path}/compact"
            plan = await self.plan(request, expanded.body, change=lambda plan: plan.at_path(path, "output"))
            await self.carry_out(request, plan)
        else:
            await self._summarize(request, expanded.body)

    async def _summarize(self, request: ClientRequest, body: bytes) -> None:
        """Let the model write the summary, for an upstream without such an endpoint."""
        items, summary_request = await request.off_loop(len(body), _summary_request, body)
        reply = await self.carry_out(request, await self.plan(request, summary_request), sends=False)
        if reply is None:
            return
        if reply.status == 200:
            size = len(body) + len(reply.body)
            reply = replace(reply, body=await off_loop(size, _compaction, reply.body, items))
        await request.respond(reply)


def _summary_request(body: bytes) -> tuple[list[bytes], bytes]:
    """Return the items of a request's input, and the request for their summary."""
    request_head = peek(body)
    items = conversation.input_items(request_head)
    return items, conversation.replace_input(
        request_head, [*items, _COMPACTION_TRIGGER], without=_RESPONSE_ONLY_PARAMS
    )


def _compaction(response: bytes, items: list[bytes]) -> bytes:
    return encode(conversation.build_compaction(decode_object(response, "the response"), items))
