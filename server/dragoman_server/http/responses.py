"""The endpoints of the Responses API: create responses that are stored, read and delete them, compact a conversation.

POST /v1/responses inserts what a request refers to, plans it as every other request, and stores the response once it is
complete, before the client gets its end, because the client's next request may refer to it.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.routing import BaseRoute

from dragoman import RequestRefused, ResponseTranslator, peek
from dragoman.codec import ResponseContext, UpstreamSpec
from dragoman.document import Request
from dragoman.jsontext import JSONObject, decode, decode_object, encode
from dragoman.sse import SSEParser
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint, ProtocolEndpoint, vendors_operation
from dragoman_server.http.operations import VENDORS_OBJECT, ApiOperation, DescribedRoute, MediaType
from dragoman_server.http.request import BOOLEAN, Parameter, Query
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.proxying.plan import Plan
from dragoman_server.responses import conversation
from dragoman_server.responses.service import HOW_TO_ENABLE
from dragoman_server.responses.stores.base import StoredResponse
from dragoman_server.wire.headers import STREAM_HEADERS, request_id_headers
from dragoman_server.wire.replies import Reply

# The limit and the default of a page in OpenAI's API reference.
_LIMIT = Parameter("limit", "how many items, 20 by default", (1, 100))
_DEFAULT_ITEMS = 20
_ORDER = Parameter("order", "which items come first; the newest by default", choices=("asc", "desc"))
_AFTER = Parameter("after", "the id of the last item of the page before")
_STREAM = Parameter("stream", "return it as a stream", choices=BOOLEAN)
_STARTING_AFTER = Parameter("starting_after", "the number of the last event that is not needed", (0, 2**53))

_COMPACTION_TRIGGER = b'{"type":"compaction_trigger"}'
# Parameters of a request for a response that a request for a summary does not have.
_RESPONSE_ONLY_PARAMS = frozenset(("stream", "stream_options", "store", "background"))


def responses_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return all routes below the one that creates responses, for each protocol whose responses can be stored."""
    routes: list[BaseRoute] = []
    for protocol in gateway.upstreams.values():
        if protocol.stored_responses:
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
                        summary="Always an error, because no response is made in the background", answers={}
                    ),
                ),
                DescribedRoute(
                    f"{path}/{{id}}",
                    StoredResponseEndpoint(gateway, protocol),
                    GET=described(
                        summary="Return a stored response",
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
    """POST /v1/responses: create a response, and store it unless `store` is false."""

    async def serve(self, request: ClientRequest) -> None:
        body, request_head = await self.read(request)
        stored = self.gateway.responses
        if not await request.off_loop(len(body), stored.applies_to, request_head):
            planning = self.plan(request, body, request_head)
            del body, request_head  # a stream may stay open for hours
            await self.carry_out(request, await planning)
            return
        destination = self.destination(request_head.model)
        expanded = await self.expand(request, body, request_head, destination, store_response=True)
        stores = expanded.conversation is not None

        def repeating_the_original(plan: Plan) -> Plan:
            # The response repeats the request as the client sent it, not as it was expanded.
            echo = plan.context.echo
            if expanded.previous is not None:
                echo = {**echo, "previous_response_id": expanded.previous}
            context = msgspec.structs.replace(plan.context, echo=echo, stored=stores)
            return replace(plan, store_response=stores, context=context)

        async def store_response(response: JSONObject, client_left: bool) -> bool:
            if client_left:
                response = conversation.mark_cancelled(response)
            return await stored.put(response, expanded, int(time.time()), request.owner)

        planning = self.plan(request, expanded.body, change=repeating_the_original)
        await self.carry_out(request, await planning, store_response=store_response if stores else None)


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
        found = await self.find(request)
        if query.boolean(_STREAM):
            after = query.integer(_STARTING_AFTER)
            protocol = self.gateway.upstreams[self.protocol.name]
            first = -1 if after is None else after
            data = await off_loop(found.size, replay, found, protocol, first)
            headers = [("content-type", protocol.endpoints[0].media_type), *STREAM_HEADERS]
            request.record.stream, request.record.outcome = True, "completed"
            await request.respond(Reply(200, [*headers, *request_id_headers(request.record.id)], data))
        else:
            body = await off_loop(found.size, lambda: encode(conversation.response_body(found)))
            await request.respond_json(msgspec.Raw(body))

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
    """POST /v1/responses/{id}/cancel: always an error, because nothing runs in the background here."""

    async def serve(self, request: ClientRequest) -> None:
        await self.find(request)
        raise RequestRefused("Cannot cancel a synchronous response.")


class CompactEndpoint(BaseEndpoint):
    """POST /v1/responses/compact: replace a conversation by its user messages and one compaction item."""

    async def serve(self, request: ClientRequest) -> None:
        body, request_head = await self.read(request)
        destination = self.destination(request_head.model)
        expanded = await self.expand(request, body, request_head, destination, store_response=False)
        if destination.upstream.stored_responses:
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


# Replaying a stored response as a stream.


def replay(response: StoredResponse, protocol: UpstreamSpec, starting_after: int) -> bytes:
    """Return the events of a stored response that are numbered above `starting_after`.

    The stream is made again from the response, so its deltas are cut in other places than they were.
    Raises RemoteProtocolError for a response that such a stream cannot repeat exactly.
    """
    body = conversation.response_body(response)
    failed = body.get("status") == "failed"
    request = Request(protocol=protocol.name, model=str(body.get("model")), messages=(), stream=True)
    created = body.get("created_at")
    context = ResponseContext(
        request=request,
        id=response.id.removeprefix("resp_"),
        now=int(created) if isinstance(created, int | float) else response.created,
        model=request.model,
        echo=body,
    )
    translator = ResponseTranslator(
        client=protocol, upstream=protocol, context=context, upstream_streams=False, client_streams=True
    )
    # Up to its last event, a stream that failed equals one that was not completed.
    translator.receive_data(encode({**body, "status": "incomplete", "error": None} if failed else body))
    translator.receive_eof()
    events = [
        (frame.event, decode(frame.data)) for frame in SSEParser().receive_data(translator.data_to_send())
    ]
    replayed = [event["item"] for _, event in events if event.get("type") == "response.output_item.done"]
    output = decode(encode(body["output"]))
    expected = [item for item in output if item.get("status") != "incomplete" or item in replayed]
    # No event reports a cancelled response.
    if replayed != expected or body.get("status") == "cancelled":
        raise RequestRefused(
            "this response cannot be replayed as a stream; request it without stream", path="/stream"
        )
    frames = []
    for name, event in events:
        if event["sequence_number"] > starting_after:
            if "response" in event:
                # The stored response has members that cannot be made from its items.
                status = event["response"]["status"]
                event["response"] = _with_status(body, status)
                if failed and status == "incomplete":
                    name = b"response.failed"
                    event["type"] = name.decode("ascii")
            frames.append(b"event: %b\ndata: %b\n\n" % (name, encode(event)))
    return b"".join(frames)


def _with_status(body: JSONObject, status: str) -> JSONObject:
    """Return the response as it was when it had this status."""
    if status == "in_progress":
        unknown: JSONObject = {"output": [], "status": "in_progress", "completed_at": None, "usage": None}
        return {**body, **unknown, "error": None, "incomplete_details": None}
    return body
