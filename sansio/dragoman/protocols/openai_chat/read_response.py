"""Chat Completions answers, streamed or whole -> events.

Strategy: what a chunk says of the answer is read here, what it says of a choice by `Choice`. The finish reason is
held back until [DONE] or the end of the stream, because later chunks may correct it and bring the usage. A
whole answer is read as one chunk. The three deltas that make up nearly all frames have a short lane.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockKind,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    Started,
    TextDelta,
    Usage,
)
from dragoman._ir.fast_path import DeltaTemplate
from dragoman._ir.losses import Ledger
from dragoman._ir.shape import note_unread
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, kind_of
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat.citations import lossy_page_lists, read_page_lists
from dragoman.protocols.openai_chat.errors import has_error, parse_error
from dragoman.protocols.openai_chat.read_calls import IdAllocator
from dragoman.protocols.openai_chat.read_choice import ChoiceReader
from dragoman.protocols.openai_chat.tables import (
    CALL_SHAPE,
    CHOICE_SHAPE,
    CHUNK_FIELDS,
    ERROR_FINISH_REASONS,
    FUNCTION_SHAPE,
    IGNORABLE_CHOICE_FIELDS,
    IGNORABLE_CHUNK_FIELDS,
    NAME,
    RESPONSE_SHAPE,
    RESPONSE_TIER_ALIASES,
    SERVICE_TIERS,
)
from dragoman.protocols.openai_chat.usage import read_usage

_NOTHING: tuple[Event, ...] = ()
_PADDING = b"obfuscation"


class ChatReader:
    """Reads one stream."""

    __slots__ = (
        "_began",
        "_choices",
        "_exchange",
        "_ledger",
        "_model",
        "_numbers",
        "_over",
        "_started",
        "_stops",
        "_tier",
        "_usage",
        "_usage_came_last",
    )

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._exchange = context
        self._ledger = ledger
        self._numbers = IdAllocator(context.id)
        self._choices: dict[int, ChoiceReader] = {}
        self._model = ""
        self._started = False
        self._began: str | None = None  # the service tier of the start
        self._over = False
        self._tier: str | None = None  # the one that was said last
        self._usage: JSONObject | None = None
        self._usage_came_last = False
        stop = context.request.params.get("stop")
        self._stops: tuple[str, ...] = (stop,) if type(stop) is str else tuple(stop or ())

    def read(self, frame: Frame) -> Sequence[Event]:
        data = frame.data
        if self._over:
            return _NOTHING
        if data == b"[DONE]":
            return self._finish(certain=True)
        try:
            chunk = decode(data)
        except RemoteProtocolError as error:
            if not data.strip():
                return _NOTHING  # some servers keep the connection alive that way
            if frame.event != b"error":
                raise unreadable_response(f"a chunk is not valid JSON: {error.message}") from None
            chunk = {"error": data.decode("utf-8", "replace")}
        if type(chunk) is not dict:
            if frame.event != b"error":
                raise unreadable_response(f"a chunk is {kind_of(chunk)}")
            chunk = {"error": chunk}
        events = self._short(chunk)
        return self._chunk(chunk, frame.event) if events is None else events

    def eof(self) -> Sequence[Event]:
        if self._over:
            return _NOTHING
        return self._finish(certain=False)

    def template_for(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta) -> DeltaTemplate | None:
        """Chunks of one open block differ in their text, and in padding at OpenAI."""
        states = self._choices.values()
        if type(delta) is ArgumentsDelta:
            call = next(call for state in states for call in state.calls.calls if call.block == delta.block)
            return DeltaTemplate(b"arguments", call.pieces.append, padding=_PADDING)
        state = next(state for state in states if state.block == delta.block)
        if type(delta) is TextDelta:
            return DeltaTemplate(b"content", padding=_PADDING) if state.kind is BlockKind.TEXT else None
        note = state.reasoning.template_parts()
        return None if note is None else DeltaTemplate(*note, padding=_PADDING)

    def whole(self, body: JSONObject) -> list[Event]:
        """The events of a whole answer."""
        choices = body.get("choices")
        if not has_error(body) and (type(choices) is not list or not choices):
            raise unreadable_response("it has no choices")
        out = self._chunk(body, b"")
        if not self._over:
            out += self._finish(certain=True)
        return out

    def _short(self, chunk: JSONObject) -> Sequence[Event] | None:
        """The short lane: one choice, one member in its delta, of the kind that is open. None: not that short."""
        try:
            [choice] = chunk["choices"]
            delta = choice["delta"]
            state = self._choices[choice["index"]]
            size = len(delta)
        except (KeyError, TypeError, ValueError):
            return None
        if choice.get("finish_reason") or choice.get("logprobs"):
            return None
        if not (chunk.keys() <= IGNORABLE_CHUNK_FIELDS and choice.keys() <= IGNORABLE_CHOICE_FIELDS):
            return None
        if type(delta) is not dict or (size != 1 and (size != 2 or "role" not in delta)):
            return None
        usage = chunk.get("usage")
        if usage is not None:
            self._note_usage(chunk, beside_choices=True)
        kind = state.kind
        if kind is BlockKind.TEXT:
            content = delta.get("content")
            return (TextDelta(state.block, content),) if type(content) is str and content else None
        if kind is None:
            calls = delta.get("tool_calls")
            return None if calls is None else _short_call(calls, state)
        if kind is BlockKind.REASONING:
            for field, pieces in state.reasoning.texts.items():
                thinking = delta.get(field)
                if type(thinking) is str and thinking:
                    pieces.append(thinking)
                    state.reasoning.emitted.append(thinking)
                    return (ReasoningDelta(state.block, thinking),)
        return None

    def _chunk(self, chunk: JSONObject, event: bytes) -> list[Event]:
        """The general lane: any chunk."""
        out: list[Event] = []
        if has_error(chunk) or event == b"error":
            return self._fail(parse_error(chunk, None), chunk)
        choices = chunk.get("choices")
        beside: JSONObject = {}
        if self._exchange.rewritten:
            beside = {
                key: value for key, value in chunk.items() if key not in CHUNK_FIELDS and value is not None
            }
        unread = {key: value for key, value in chunk.items() if key not in beside} if beside else chunk
        note_unread(unread, RESPONSE_SHAPE, "", self._ledger)
        self._note_usage(chunk, bool(choices))
        self._note_tier(chunk)
        if not self._started and (choices or chunk.get("id")):
            self._start(chunk, out)
        if type(choices) is list:
            for position, choice in enumerate(choices):
                if type(choice) is not dict:
                    raise unreadable_response(f"a choice is {kind_of(choice)}")
                self._choice(choice, position, out)
        moderation = chunk.get("moderation")
        if moderation is not None and self._started:
            out.append(Opaque(NAME, "moderation", moderation, "/moderation", round_trip=False))
        if self._started:
            for key, value in beside.items():
                out.append(Opaque(NAME, key, value, f"/{key}", round_trip=False))
        if "citations" in chunk or "search_results" in chunk:
            self._list_pages(chunk, out)
        return out

    def _list_pages(self, chunk: JSONObject, out: list[Event]) -> None:
        """Pages that are listed beside the choices: they are about the first one."""
        choice = self._choices.get(0)
        if choice is None:
            self._ledger.dropped("/citations", "they came before the text that cites them")
            return
        choice.cite_pages(read_page_lists(chunk), out)
        for key in lossy_page_lists(chunk):
            self._ledger.altered(f"/{key}", "told as citations: URL and title alone")

    def _start(self, chunk: JSONObject, out: list[Event]) -> None:
        self._started = True
        self._began = self._tier
        self._model = _string(chunk.get("model")) or self._exchange.request.model
        created = chunk.get("created")
        out.append(
            Started(
                _string(chunk.get("id")) or f"chatcmpl-{self._exchange.id}",
                self._model,
                created if type(created) is int else None,
                self._tier,
            )
        )

    def _note_tier(self, chunk: JSONObject) -> None:
        """Other words than the official ones would break strict clients."""
        said = _string(chunk.get("service_tier"))
        tier = RESPONSE_TIER_ALIASES.get(said or "", said)
        if tier in SERVICE_TIERS:
            self._tier = tier
        elif tier is not None:
            self._ledger.dropped("/service_tier", "not a service tier of this protocol")

    def _used(self) -> list[Event]:
        """What the answer has used, as far as that is known, and on which tier if that was said late."""
        usage = None if self._usage is None else read_usage(self._usage)
        if self._tier != self._began:
            usage = msgspec.structs.replace(usage or Usage(), service_tier=self._tier)
        return [] if usage is None else [usage]

    def _note_usage(self, chunk: JSONObject, beside_choices: bool) -> None:
        usage = chunk.get("usage")
        groq = chunk.get("x_groq")
        if usage is None and type(groq) is dict:
            usage = groq.get("usage")
        if type(usage) is dict:
            self._usage = usage
            self._usage_came_last = not beside_choices

    def _fail(self, error: WireError, chunk: JSONObject) -> list[Event]:
        """The upstream says that the answer broke off. What it has used still counts."""
        self._over = True
        self._note_usage(chunk, beside_choices=True)
        out: list[Event] = []
        if self._started:
            out += self._used()
        out.append(Failed(error))
        return out

    def _choice(self, choice: JSONObject, position: int, out: list[Event]) -> None:
        index = choice.get("index")
        if type(index) is not int or index < 0:
            index = position
        state = self._choices.get(index)
        note_unread(choice, CHOICE_SHAPE, f"/choices/{index}", self._ledger)
        delta = choice.get("delta")
        if state is None:
            state = self._choices[index] = ChoiceReader(index, self._numbers, self._model, self._ledger)
            if delta is None:
                delta = choice.get("message")
        start = len(out)
        if type(delta) is dict:
            state.delta(delta, whole="delta" not in choice, out=out)
        elif delta is not None:
            raise unreadable_response(f"a delta is {kind_of(delta)}")
        logprobs = choice.get("logprobs")
        if type(logprobs) is dict:
            state.logprobs(logprobs, out, start)
        usage = choice.get("usage")
        if type(usage) is dict:
            self._usage = usage
        finish = choice.get("finish_reason")
        if type(finish) is str and finish:  # "" is the same as null
            state.finish_reason = finish
        # vLLM, and SGLang by the other name, say which sequence matched, or the number of the token that ended it.
        stop = choice.get("stop_reason") or choice.get("matched_stop")
        if type(stop) is str and stop in self._stops:
            state.sequence = stop
        elif type(stop) is str:
            self._ledger.dropped(f"/choices/{index}/stop_reason", "not a stop sequence that was asked for")

    def _finish(self, *, certain: bool) -> list[Event]:
        """The stream is over. certain: [DONE] or a whole body says that the answer is, too."""
        told = certain or self._usage_came_last
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not choices or choices[0].index != 0:
            raise _truncated("without any answer", certain)
        for state in choices:
            if state.finish_reason is None and (not told or state.calls.has_partial_arguments()):
                raise _truncated("without a finish reason", certain)
        self._over = True
        out: list[Event] = []
        usage = self._used()
        for state in choices:
            failed = ERROR_FINISH_REASONS.get(state.finish_reason or "")
            if failed is not None:
                message = f"the upstream stopped with finish_reason {state.finish_reason}"
                return [*usage, Failed(WireError(failed, message, code=state.finish_reason))]
        for state in choices:
            state.end(out)
        return [*out, *usage, ENDED]


def read_whole(body: JSONObject, context: ResponseContext, ledger: Ledger) -> list[Event]:
    """The events of a whole answer. Raises RemoteProtocolError (502) when it cannot be read."""
    return ChatReader(context, ledger).whole(body)


def _short_call(calls: JSON, state: ChoiceReader) -> Sequence[Event] | None:
    """The short lane of arguments: one more piece of a call whose block is open."""
    if type(calls) is not list or len(calls) != 1:
        return None
    fragment = calls[0]
    if type(fragment) is not dict or fragment.get("id") or "custom" in fragment:
        return None
    call = state.calls.open_call(fragment.get("index"))
    function = fragment.get("function")
    if call is None or type(function) is not dict or function.get("name"):
        return None
    if not (fragment.keys() <= CALL_SHAPE.keys() and function.keys() <= FUNCTION_SHAPE.keys()):
        return None
    piece = function.get("arguments")
    if type(piece) is not str:
        return None
    if not piece:
        return _NOTHING
    call.pieces.append(piece)
    return (ArgumentsDelta(call.block, piece),)


def _string(value: JSON) -> str | None:
    return value if type(value) is str and value else None


def _truncated(how: str, certain: bool) -> RemoteProtocolError:
    """certain: the upstream says that this is the whole answer, which is then one that cannot be read."""
    subject = "it" if certain else "the upstream's stream"
    return RemoteProtocolError(f"{subject} ended {how}", status=502)


def unreadable_response(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(what, status=502)
