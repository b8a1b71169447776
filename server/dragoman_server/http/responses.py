"""The Responses API beside the making of answers: stored responses, and summing up a conversation.

Strategy: the endpoint of answers puts in what a request refers to, plans as for every other request, and keeps
the answer when it has ended, before the client is told that it has: what the client asks next may build on it.
"""

import time
from dataclasses import replace

import msgspec
from starlette.routing import BaseRoute, Route

from dragoman import RemoteProtocolError, ResponseTranslator, peek
from dragoman.codec import Endpoint, Exchange, ProtocolSpec, UpstreamSpec
from dragoman.document import Request
from dragoman.jsontext import JSONObject, decode, decode_object, encode
from dragoman.sse import SSEParser
from dragoman_server.gateway import Gateway
from dragoman_server.headers import STREAM_HEADERS, request_ids
from dragoman_server.http.endpoint import BaseEndpoint, Call, ProtocolEndpoint
from dragoman_server.http.query import invalid, last, number, parameters, switch
from dragoman_server.replies import Reply
from dragoman_server.responses import conversation as chain
from dragoman_server.responses.service import OFF, Expanded, StoredResponses
from dragoman_server.responses.stores.base import Item, StoredResponse

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
        self._stored = StoredResponses(gateway.responses)

    async def serve(self, call: Call) -> None:
        body = await call.body()
        peeked = peek(body)
        await self.admit(call, peeked.model)
        if not self._stored.concern(peeked):
            await self.exchange(self.plan(call, body, peeked), call).run()
            return
        goal = self.destination(peeked.model)
        expanded = await self._stored.expand(body, peeked, goal, keep=True, now=call.now, owner=call.owner)
        plan = self.plan(call, expanded.body)
        keeps = expanded.whole is not None
        plan = plan.changed(
            lambda each: replace(each, keeps_answer=keeps, exchange=_told(each.exchange, expanded))
        )

        async def keep(answer: JSONObject, left: bool) -> bool:
            if left:
                answer = chain.cancelled(answer)
            return await self._stored.keep(answer, expanded, int(time.time()), call.owner)

        await self.exchange(plan, call, keep=keep if keeps else None).run()


def _told(exchange: Exchange, expanded: Expanded) -> Exchange:
    """What the answer repeats of the request is what the client sent, not what was made of it."""
    request, keeps = exchange.request, expanded.whole is not None
    if expanded.previous is not None:
        raw = {**request.raw, "previous_response_id": expanded.previous}
        request = msgspec.structs.replace(request, raw=raw)
    return msgspec.structs.replace(exchange, request=request, stored=keeps)


class _Below(BaseEndpoint):
    """An endpoint about one stored response."""

    def __init__(self, gateway: Gateway, protocol: UpstreamSpec) -> None:
        super().__init__(gateway, protocol)
        self.responses = protocol
        self.stored = StoredResponses(gateway.responses)

    async def find(self, call: Call) -> StoredResponse:
        """Raises RemoteProtocolError."""
        id = self.id_of(call)
        found = await self.stored.get(id, call.now, call.owner)
        if found is None:
            raise self.no_such(id)
        return found

    def id_of(self, call: Call) -> str:
        """The id in the path. Raises RemoteProtocolError where nothing is kept."""
        if not self.stored.is_on:
            raise RemoteProtocolError(
                f"this gateway keeps no answers: {OFF} in its configuration", code="unsupported_operation"
            )
        return str(call.scope["path_params"]["id"])

    def no_such(self, id: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"Response with id '{chain.shown(id)}' not found.", status_hint=404, code="response_not_found"
        )


class StoredResponseEndpoint(_Below):
    """GET and DELETE /v1/responses/{id}."""

    async def serve(self, call: Call) -> None:
        if call.scope["method"] == "DELETE":
            await self._delete(call)
            return
        query = parameters(call.query)
        found = await self.find(call)
        if switch(query, "stream"):
            after = number(query, "starting_after", 0, 2**53)
            data = replay(found, self.responses, -1 if after is None else after)
            headers = [("content-type", self.responses.endpoints[0].media_type), *STREAM_HEADERS]
            call.record.stream, call.record.outcome = True, "completed"
            await call.reply(Reply(200, [*headers, *request_ids((), call.record.id)], data))
        else:
            await call.answer(chain.response_body(found))

    async def _delete(self, call: Call) -> None:
        id = self.id_of(call)
        if not await self.stored.delete(id, call.owner):
            raise self.no_such(id)
        await call.answer({"id": id, "object": "response", "deleted": True})


class InputItemsEndpoint(_Below):
    """GET /v1/responses/{id}/input_items: all that the model was given, page by page."""

    async def serve(self, call: Call) -> None:
        query = parameters(call.query)
        limit = number(query, "limit", 1, _MOST_ITEMS)
        order = last(query, "order") or "desc"
        if order not in ("asc", "desc"):
            raise invalid("order", "asc or desc")
        found = await self.find(call)
        items = list(found.input if order == "asc" else reversed(found.input))
        after = last(query, "after")
        if after is not None:
            items = items[_place(items, after) + 1 :]
        page = [chain.listed(item) for item in items[: limit or _USUAL_ITEMS]]
        await call.answer(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": len(page) < len(items),
            }
        )


def _place(items: list[Item], id: str) -> int:
    for place, item in enumerate(items):
        if item.id == id:
            return place
    raise invalid("after", "the id of an item of this list")


class CancelEndpoint(_Below):
    """POST /v1/responses/{id}/cancel: nothing runs in the background here, so there is nothing to cancel."""

    async def serve(self, call: Call) -> None:
        await self.find(call)
        raise RemoteProtocolError("Cannot cancel a synchronous response.")


class CompactEndpoint(BaseEndpoint):
    """POST /v1/responses/compact: a conversation in, user messages and one compaction item out."""

    def __init__(self, gateway: Gateway, protocol: UpstreamSpec) -> None:
        super().__init__(gateway, protocol)
        self._stored = StoredResponses(gateway.responses)
        self._asking = ProtocolEndpoint(gateway, protocol, protocol.endpoints[0])

    async def serve(self, call: Call) -> None:
        body = await call.body()
        peeked = peek(body)
        await self.admit(call, peeked.model)
        goal = self.destination(peeked.model)
        expanded = await self._stored.expand(body, peeked, goal, keep=False, now=call.now, owner=call.owner)
        if goal.upstream.stored_responses:
            plan = self._asking.plan(call, expanded.body).below("/compact", "output")
            await self.exchange(plan, call).run()
        else:
            await self._summarize(call, expanded.body)

    async def _summarize(self, call: Call, body: bytes) -> None:
        peeked = peek(body)
        items = chain.input_items(peeked)
        asking = chain.with_input(peeked, [*items, _TRIGGER], without=_NO_SUMMARY_SETTINGS)
        reply = await self.whole_reply(self._asking.plan(call, asking), call)
        if reply is None:
            return
        if reply.status == 200:
            whole = decode_object(reply.body, "the answer")
            reply = replace(reply, body=encode(chain.compaction(whole, items)))
        await call.reply(reply)


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
    exchange = Exchange(
        request=request,
        id=response.id.removeprefix("resp_"),
        now=int(created) if isinstance(created, int | float) else response.created,
        model=request.model,
    )
    translator = ResponseTranslator(protocol, protocol, exchange, upstream_streams=False, client_streams=True)
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
