"""The Responses API beside the making of answers: stored responses, and summing up a conversation.

Strategy: the endpoint of answers puts in what a request refers to, plans as for every other request, and keeps
the answer when it has ended, before the client is told that it has: what the client asks next may build on it.
"""

import time
from dataclasses import replace

import msgspec
from starlette.routing import BaseRoute, Route

from dragoman import RemoteProtocolError, ResponseTranslator, peek
from dragoman.codec import Endpoint, ProtocolSpec, ResponseContext, UpstreamSpec
from dragoman.document import Request
from dragoman.jsontext import JSONObject, decode, decode_object, encode
from dragoman.sse import SSEParser
from dragoman_server.gateway import Gateway
from dragoman_server.headers import STREAM_HEADERS, request_id_headers
from dragoman_server.http.endpoint import BaseEndpoint, ClientRequest, ProtocolEndpoint
from dragoman_server.http.query import (
    boolean_parameter,
    integer_parameter,
    invalid_parameter,
    last_value,
    parse_query,
)
from dragoman_server.replies import Reply
from dragoman_server.responses import conversation as chain
from dragoman_server.responses.service import HOW_TO_ENABLE, ExpandedRequest, StoredResponseService
from dragoman_server.responses.stores.base import StoredItem, StoredResponse

# The limits and the default of a page, as OpenAI's reference has them.
_MOST_ITEMS = 100
_USUAL_ITEMS = 20

_TRIGGER = b'{"type":"compaction_trigger"}'
# Settings of a request for an answer that a request for a summary does not have.
_NO_SUMMARY_SETTINGS = frozenset(("stream", "stream_options", "store", "background"))


def responses_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return all paths below the one where answers are made, for each protocol whose answers can be kept."""
    routes: list[BaseRoute] = []
    for protocol in gateway.upstreams.values():
        if protocol.stored_responses:
            path = protocol.endpoints[0].path
            routes += [
                Route(f"{path}/compact", CompactEndpoint(gateway, protocol), methods=["POST"]),
                Route(f"{path}/{{id}}/input_items", InputItemsEndpoint(gateway, protocol), methods=["GET"]),
                Route(f"{path}/{{id}}/cancel", CancelEndpoint(gateway, protocol), methods=["POST"]),
                Route(f"{path}/{{id}}", StoredResponseEndpoint(gateway, protocol), methods=["GET", "DELETE"]),
            ]
    return routes


class ResponsesEndpoint(ProtocolEndpoint):
    """POST /v1/responses."""

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec, endpoint: Endpoint) -> None:
        super().__init__(gateway, protocol, endpoint)
        self._stored = StoredResponseService(gateway.responses)

    async def serve(self, call: ClientRequest) -> None:
        body = await call.body()
        request_head = peek(body)
        await self.admit(call, request_head.model)
        if not self._stored.applies_to(request_head):
            await self.request_handler(self.plan(call, body, request_head), call).run()
            return
        goal = self.destination(request_head.model)
        expanded = await self._stored.expand(
            body, request_head, goal, store_response=True, now=call.now, owner=call.owner
        )
        plan = self.plan(call, expanded.body)
        keeps = expanded.conversation is not None
        plan = plan.changed(
            lambda each: replace(each, store_response=keeps, context=_told(each.context, expanded))
        )

        async def store_response(answer: JSONObject, left: bool) -> bool:
            if left:
                answer = chain.mark_cancelled(answer)
            return await self._stored.store(answer, expanded, int(time.time()), call.owner)

        await self.request_handler(plan, call, store_response=store_response if keeps else None).run()


def _told(context: ResponseContext, expanded: ExpandedRequest) -> ResponseContext:
    """What the answer repeats of the request is what the client sent, not what was made of it."""
    request, keeps = context.request, expanded.conversation is not None
    if expanded.previous is not None:
        raw = {**request.raw, "previous_response_id": expanded.previous}
        request = msgspec.structs.replace(request, raw=raw)
    return msgspec.structs.replace(context, request=request, stored=keeps)


class StoredResponseBase(BaseEndpoint):
    """An endpoint about one stored response."""

    def __init__(self, gateway: Gateway, protocol: UpstreamSpec) -> None:
        super().__init__(gateway, protocol)
        self.responses = protocol
        self.stored = StoredResponseService(gateway.responses)

    async def find(self, call: ClientRequest) -> StoredResponse:
        """Raises RemoteProtocolError."""
        id = self.id_of(call)
        found = await self.stored.get(id, call.now, call.owner)
        if found is None:
            raise self.no_such(id)
        return found

    def id_of(self, call: ClientRequest) -> str:
        """The id in the path. Raises RemoteProtocolError where nothing is kept."""
        if not self.stored.enabled:
            raise RemoteProtocolError(
                f"this gateway keeps no answers: {HOW_TO_ENABLE} in its configuration",
                code="unsupported_operation",
            )
        return str(call.scope["path_params"]["id"])

    def no_such(self, id: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"Response with id '{chain.printable_id(id)}' not found.",
            status=404,
            code="response_not_found",
        )


class StoredResponseEndpoint(StoredResponseBase):
    """GET and DELETE /v1/responses/{id}."""

    async def serve(self, call: ClientRequest) -> None:
        if call.scope["method"] == "DELETE":
            await self._delete(call)
            return
        query = parse_query(call.query)
        found = await self.find(call)
        if boolean_parameter(query, "stream"):
            after = integer_parameter(query, "starting_after", 0, 2**53)
            data = replay(found, self.responses, -1 if after is None else after)
            headers = [("content-type", self.responses.endpoints[0].media_type), *STREAM_HEADERS]
            call.record.stream, call.record.outcome = True, "completed"
            await call.respond(Reply(200, [*headers, *request_id_headers((), call.record.id)], data))
        else:
            await call.respond_json(chain.response_body(found))

    async def _delete(self, call: ClientRequest) -> None:
        id = self.id_of(call)
        if not await self.stored.delete(id, call.owner):
            raise self.no_such(id)
        await call.respond_json({"id": id, "object": "response", "deleted": True})


class InputItemsEndpoint(StoredResponseBase):
    """GET /v1/responses/{id}/input_items: all that the model was given, page by page."""

    async def serve(self, call: ClientRequest) -> None:
        query = parse_query(call.query)
        limit = integer_parameter(query, "limit", 1, _MOST_ITEMS)
        order = last_value(query, "order") or "desc"
        if order not in ("asc", "desc"):
            raise invalid_parameter("order", "asc or desc")
        found = await self.find(call)
        items = list(found.input if order == "asc" else reversed(found.input))
        after = last_value(query, "after")
        if after is not None:
            items = items[_place(items, after) + 1 :]
        page = [chain.item_for_list(item) for item in items[: limit or _USUAL_ITEMS]]
        await call.respond_json(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": len(page) < len(items),
            }
        )


def _place(items: list[StoredItem], id: str) -> int:
    for place, item in enumerate(items):
        if item.id == id:
            return place
    raise invalid_parameter("after", "the id of an item of this list")


class CancelEndpoint(StoredResponseBase):
    """POST /v1/responses/{id}/cancel: nothing runs in the background here, so there is nothing to cancel."""

    async def serve(self, call: ClientRequest) -> None:
        await self.find(call)
        raise RemoteProtocolError("Cannot cancel a synchronous response.")


class CompactEndpoint(BaseEndpoint):
    """POST /v1/responses/compact: a conversation in, user messages and one compaction item out."""

    def __init__(self, gateway: Gateway, protocol: UpstreamSpec) -> None:
        super().__init__(gateway, protocol)
        self._stored = StoredResponseService(gateway.responses)
        self._asking = ProtocolEndpoint(gateway, protocol, protocol.endpoints[0])

    async def serve(self, call: ClientRequest) -> None:
        body = await call.body()
        request_head = peek(body)
        await self.admit(call, request_head.model)
        goal = self.destination(request_head.model)
        expanded = await self._stored.expand(
            body, request_head, goal, store_response=False, now=call.now, owner=call.owner
        )
        if goal.upstream.stored_responses:
            plan = self._asking.plan(call, expanded.body).at_subpath("/compact", "output")
            await self.request_handler(plan, call).run()
        else:
            await self._summarize(call, expanded.body)

    async def _summarize(self, call: ClientRequest, body: bytes) -> None:
        request_head = peek(body)
        items = chain.input_items(request_head)
        asking = chain.replace_input(request_head, [*items, _TRIGGER], without=_NO_SUMMARY_SETTINGS)
        reply = await self.fetch_reply(self._asking.plan(call, asking), call)
        if reply is None:
            return
        if reply.status == 200:
            whole = decode_object(reply.body, "the answer")
            reply = replace(reply, body=encode(chain.build_compaction(whole, items)))
        await call.respond(reply)


# Replaying a stored response as a stream.


def replay(response: StoredResponse, protocol: UpstreamSpec, starting_after: int) -> bytes:
    """The events of a stored answer, those numbered up to `starting_after` left out.

    The stream is made anew from the answer: its deltas are cut otherwise than they were.
    Raises RemoteProtocolError for an answer that does not come out the same.
    """
    body = chain.response_body(response)
    failed = body.get("status") == "failed"
    request = Request(
        protocol=protocol.name, model=str(body.get("model")), messages=(), raw=body, stream=True
    )
    created = body.get("created_at")
    context = ResponseContext(
        request=request,
        id=response.id.removeprefix("resp_"),
        now=int(created) if isinstance(created, int | float) else response.created,
        model=request.model,
    )
    translator = ResponseTranslator(protocol, protocol, context, upstream_streams=False, client_streams=True)
    # Up to its last event, a stream that failed is one that was not completed.
    translator.receive_data(encode({**body, "status": "incomplete", "error": None} if failed else body))
    translator.receive_eof()
    events = [
        (frame.event, decode(frame.data)) for frame in SSEParser().receive_data(translator.data_to_send())
    ]
    said = [event["item"] for _, event in events if event.get("type") == "response.output_item.done"]
    output = decode(encode(body["output"]))
    whole = [item for item in output if item.get("status") != "incomplete" or item in said]
    # No event tells of an answer that was cancelled.
    if said != whole or body.get("status") == "cancelled":
        raise RemoteProtocolError(
            "this response cannot be replayed as a stream; ask for it without stream", path="/stream"
        )
    frames = []
    for name, event in events:
        if event["sequence_number"] > starting_after:
            if "response" in event:
                # The answer itself is kept: it says more than what could be made of its items.
                then = event["response"]["status"]
                event["response"] = _at_the_time(body, then)
                if failed and then == "incomplete":
                    name = b"response.failed"
                    event["type"] = name.decode("ascii")
            frames.append(b"event: %b\ndata: %b\n\n" % (name, encode(event)))
    return b"".join(frames)


def _at_the_time(body: JSONObject, status: str) -> JSONObject:
    if status == "in_progress":
        unknown: JSONObject = {"output": [], "status": "in_progress", "completed_at": None, "usage": None}
        return {**body, **unknown, "error": None, "incomplete_details": None}
    return body
