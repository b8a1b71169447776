"""Chat Completions answers, streamed or whole -> events.

Strategy: Chat has deltas and nothing else: no starts, no ends. So each choice keeps one open text, refusal or
reasoning block, ends it when the kind of delta changes, and leaves tool calls to `Calls`. The finish reason is
held back until [DONE] or the end of the stream, because later chunks may correct it and bring the usage. A
whole answer is read as one large delta. The three deltas that make up nearly all frames have a short lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._errors import RemoteProtocolError
from dragoman._events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Seal,
    SealDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman._fault import Fault
from dragoman._json import JSON, JSONObject, decode, kind_of
from dragoman._lane import LaneHint
from dragoman._loss import Ledger, LossCode, child
from dragoman._shape import note_unread
from dragoman._spec import Exchange
from dragoman._sse import Frame

from ._errors import fault_of, is_error
from ._read_calls import Calls, Numbers
from ._reasoning import Collected, entry_text
from ._tables import (
    ANSWER_SHAPE,
    CALL_SHAPE,
    CHOICE_SHAPE,
    DELTA_FIELDS,
    FUNCTION_SHAPE,
    MESSAGE_SHAPE,
    NAME,
    OPAQUE_FIELDS,
    PLAIN_ENDS,
    SERVICE_TIERS,
    STOP_FAULTS,
    STOPS,
)
from ._usage import read_usage

_NOTHING: tuple[Event, ...] = ()
_PADDING = b"obfuscation"

# Reasons after which a tool call may be half.
_CUTS = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW, StopReason.CONTENT_FILTER})


class _Choice:
    """One choice: its open block (kind is None when there is none), its calls, and how it stopped."""

    __slots__ = ("block", "calls", "cites", "finish", "index", "kind", "reasoning", "sequence")

    def __init__(self, index: int, numbers: Numbers) -> None:
        self.index = index
        self.kind: BlockKind | None = None
        self.block = -1
        self.reasoning = Collected()
        self.calls = Calls(index, numbers)
        self.cites: list[JSONObject] = []  # annotations that came before their text
        self.finish: str | None = None
        self.sequence: str | None = None


class ChatReader:
    """Reads one stream."""

    __slots__ = (
        "_choices",
        "_exchange",
        "_ledger",
        "_model",
        "_numbers",
        "_over",
        "_started",
        "_stops",
        "_usage",
        "_usage_came_last",
    )

    def __init__(self, exchange: Exchange, ledger: Ledger) -> None:
        self._exchange = exchange
        self._ledger = ledger
        self._numbers = Numbers(exchange.id)
        self._choices: dict[int, _Choice] = {}
        self._model = ""
        self._started = False
        self._over = False
        self._usage: JSONObject | None = None
        self._usage_came_last = False
        stop = exchange.request.params.get("stop")
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
                raise _unreadable(f"a chunk is not valid JSON: {error.message}") from None
            chunk = {"error": data.decode("utf-8", "replace")}
        if type(chunk) is not dict:
            if frame.event != b"error":
                raise _unreadable(f"a chunk is {kind_of(chunk)}")
            chunk = {"error": chunk}
        events = self._short(chunk)
        return self._chunk(chunk, frame.event) if events is None else events

    def eof(self) -> Sequence[Event]:
        if self._over:
            return _NOTHING
        return self._finish(certain=False)

    def lane(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta) -> LaneHint | None:
        """Chunks of one open block differ in their text, and in padding at OpenAI."""
        states = self._choices.values()
        if type(delta) is ArgumentsDelta:
            call = next(call for state in states for call in state.calls.calls if call.block == delta.block)
            return LaneHint(b"arguments", call.pieces.append, padding=_PADDING)
        state = next(state for state in states if state.block == delta.block)
        if type(delta) is TextDelta:
            return LaneHint(b"content", padding=_PADDING) if state.kind is BlockKind.TEXT else None
        note = state.reasoning.lane()
        return None if note is None else LaneHint(*note, padding=_PADDING)

    def whole(self, body: JSONObject) -> list[Event]:
        """The events of a whole answer."""
        choices = body.get("choices")
        if not is_error(body) and (type(choices) is not list or not choices):
            raise _unreadable("it has no choices")
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
        if choice.get("finish_reason") or choice.get("logprobs") or "error" in chunk or "usage" in choice:
            return None
        if not (chunk.keys() <= ANSWER_SHAPE.keys() and choice.keys() <= CHOICE_SHAPE.keys()):
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
                    state.reasoning.said.append(thinking)
                    return (ReasoningDelta(state.block, thinking),)
        return None

    def _chunk(self, chunk: JSONObject, event: bytes) -> list[Event]:
        """The general lane: any chunk."""
        out: list[Event] = []
        if is_error(chunk) or event == b"error":
            return self._fail(fault_of(chunk, None), chunk)
        choices = chunk.get("choices")
        note_unread(chunk, ANSWER_SHAPE, "", self._ledger)
        self._note_usage(chunk, bool(choices))
        if not self._started and (choices or chunk.get("id")):
            self._start(chunk, out)
        if type(choices) is list:
            for position, choice in enumerate(choices):
                if type(choice) is not dict:
                    raise _unreadable(f"a choice is {kind_of(choice)}")
                self._choice(choice, position, out)
        moderation = chunk.get("moderation")
        if moderation is not None and self._started:
            out.append(Opaque(NAME, "moderation", moderation, "/moderation"))
        return out

    def _start(self, chunk: JSONObject, out: list[Event]) -> None:
        self._started = True
        self._model = _string(chunk.get("model")) or self._exchange.request.model
        created, tier = chunk.get("created"), _string(chunk.get("service_tier"))
        if tier is not None and tier not in SERVICE_TIERS:
            self._ledger.dropped("/service_tier", "not a service tier of this protocol")
        out.append(
            Started(
                _string(chunk.get("id")) or f"chatcmpl-{self._exchange.id}",
                self._model,
                created if type(created) is int else None,
                # Other words than the official ones ("on_demand") would break strict clients.
                tier if tier in SERVICE_TIERS else None,
            )
        )

    def _note_usage(self, chunk: JSONObject, beside_choices: bool) -> None:
        usage = chunk.get("usage")
        groq = chunk.get("x_groq")
        if usage is None and type(groq) is dict:
            usage = groq.get("usage")
        if type(usage) is dict:
            self._usage = usage
            self._usage_came_last = not beside_choices

    def _fail(self, fault: Fault, chunk: JSONObject) -> list[Event]:
        """The upstream says that the answer broke off. What it has used still counts."""
        self._over = True
        self._note_usage(chunk, beside_choices=True)
        out: list[Event] = []
        if self._started and self._usage is not None:
            out.append(read_usage(self._usage))
        out.append(Failed(fault))
        return out

    def _choice(self, choice: JSONObject, position: int, out: list[Event]) -> None:
        index = choice.get("index")
        if type(index) is not int or index < 0:
            index = position
        state = self._choices.get(index)
        note_unread(choice, CHOICE_SHAPE, f"/choices/{index}", self._ledger)
        delta = choice.get("delta")
        if state is None:
            state = self._choices[index] = _Choice(index, self._numbers)
            if delta is None:
                delta = choice.get("message")
        start = len(out)
        if type(delta) is dict:
            self._delta(state, delta, whole="delta" not in choice, out=out)
        elif delta is not None:
            raise _unreadable(f"a delta is {kind_of(delta)}")
        logprobs = choice.get("logprobs")
        if type(logprobs) is dict:
            self._logprobs(state, logprobs, out, start)
        usage = choice.get("usage")
        if type(usage) is dict:
            self._usage = usage
        finish = choice.get("finish_reason")
        if type(finish) is str and finish:  # "" is the same as null
            state.finish = finish
        stop = choice.get("stop_reason")
        if type(stop) is str and stop in self._stops:
            state.sequence = stop  # vLLM names the sequence that matched
        elif stop is not None:
            self._ledger.dropped(f"/choices/{index}/stop_reason", "not a stop sequence that was asked for")

    def _delta(self, state: _Choice, delta: JSONObject, *, whole: bool, out: list[Event]) -> None:
        note_unread(
            {key: delta[key] for key in MESSAGE_SHAPE if key in delta},
            MESSAGE_SHAPE,
            f"/choices/{state.index}/message",
            self._ledger,
        )
        if not delta.keys() <= _PLAIN_FIELDS:
            self._rare(state, delta, out)
        content = delta.get("content")
        if type(content) is str:
            if content:
                self._text(state, BlockKind.TEXT, content, out)
        elif type(content) is list:
            for part in content:
                self._part(state, part, out)
        elif content is not None:
            raise _unreadable(f"content is {kind_of(content)}")
        refusal = delta.get("refusal")
        if type(refusal) is str and refusal:
            self._text(state, BlockKind.REFUSAL, refusal, out)
        calls = delta.get("tool_calls")
        if calls:
            if type(calls) is not list:
                raise _unreadable(f"tool_calls is {kind_of(calls)}")
            self._end_block(state, out)
            for place, fragment in enumerate(calls):
                state.calls.fragment(fragment, out, place=place if whole else None)
        legacy = delta.get("function_call")
        if legacy is not None:
            self._end_block(state, out)
            state.calls.legacy(legacy, out)

    def _rare(self, state: _Choice, delta: JSONObject, out: list[Event]) -> None:
        """Members outside the official delta: reasoning, annotations, and what we do not know."""
        reasoning = (
            delta.get("reasoning_content")
            or delta.get("reasoning")
            or delta.get("reasoning_details")
            or delta.get("thinking_blocks")
        )
        if reasoning:
            self._open(state, BlockKind.REASONING, out)
            self._say(state, state.reasoning.add(delta), out)
        annotations = delta.get("annotations")
        if type(annotations) is list:
            state.cites += [cite for cite in annotations if type(cite) is dict]
            if state.kind is BlockKind.TEXT:
                self._cite(state, out)
        for key, value in delta.items():
            if key in DELTA_FIELDS:
                continue
            path = f"/choices/{state.index}/message/{key}"
            if key in OPAQUE_FIELDS:
                if value:
                    out.append(Opaque(NAME, key, value, path, state.index))
            elif value is not None:
                path = child(f"/choices/{state.index}/message", key)
                self._ledger.add(LossCode.UNKNOWN_FIELD, path, "not a field of this protocol version")

    def _part(self, state: _Choice, part: JSON, out: list[Event]) -> None:
        """A part of content that is a list, as Mistral's servers send it."""
        kind = part.get("type") if type(part) is dict else None
        if kind == "thinking":
            self._open(state, BlockKind.REASONING, out)
            self._say(state, state.reasoning.add_part(part), out)
            return
        text = entry_text(part)
        if text:
            self._text(state, BlockKind.TEXT, text, out)
        elif kind != "text":
            path = f"/choices/{state.index}/message/content"
            out.append(Opaque(NAME, str(kind), part, path, state.index))

    def _text(self, state: _Choice, kind: BlockKind, text: str, out: list[Event]) -> None:
        self._open(state, kind, out)
        if state.cites and kind is BlockKind.TEXT:
            self._cite(state, out)
        out.append(TextDelta(state.block, text))

    @staticmethod
    def _say(state: _Choice, text: str, out: list[Event]) -> None:
        if text:
            state.reasoning.said.append(text)
            out.append(ReasoningDelta(state.block, text))

    @staticmethod
    def _cite(state: _Choice, out: list[Event]) -> None:
        for native in state.cites:
            cite = native.get("url_citation")
            cite = cite if type(cite) is dict else {}
            start, end = cite.get("start_index"), cite.get("end_index")
            spans = type(start) is int and type(end) is int and end > start  # 0 to 0 says nothing
            out.append(
                Annotation(
                    state.block,
                    NAME,
                    native,
                    _string(cite.get("url")),
                    _string(cite.get("title")),
                    start if spans else None,
                    end if spans else None,
                )
            )
        state.cites.clear()

    def _logprobs(self, state: _Choice, logprobs: JSONObject, out: list[Event], start: int) -> None:
        """Log probabilities come before the text that they are about, which is in `out` from `start` on."""
        for member, kind in _LOGPROBS:
            tokens = logprobs.get(member)
            if type(tokens) is not list or not tokens:
                continue
            if state.kind is kind:
                event = Logprobs(state.block, [_token(token) for token in tokens if type(token) is dict])
                ours = (at for at in range(start, len(out)) if _fills(out[at], state.block))
                out.insert(next(ours, len(out)), event)
            else:
                # Tokens of reasoning or of a call: the official answer has them for text alone.
                path = f"/choices/{state.index}/logprobs/{member}"
                self._ledger.dropped(path, "log probabilities of something other than text")

    def _open(self, state: _Choice, kind: BlockKind, out: list[Event]) -> None:
        """Make sure that a block of this kind is open."""
        if state.kind is kind:
            return
        self._end_block(state, out)
        state.calls.end_whole(out)
        state.kind = kind
        state.block = self._numbers.block()
        if kind is BlockKind.REASONING:
            state.reasoning = Collected()
        out.append(BlockStarted(state.block, kind, state.index))

    def _end_block(self, state: _Choice, out: list[Event]) -> None:
        if state.kind is None:
            return
        if state.kind is BlockKind.REASONING:
            out.append(SealDelta(state.block, Seal(NAME, state.reasoning.native(), self._model)))
        out.append(BlockEnded(state.block))
        state.kind = None

    def _finish(self, *, certain: bool) -> list[Event]:
        """The stream is over. certain: [DONE] or a whole body says that the answer is, too."""
        told = certain or self._usage_came_last
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not choices or choices[0].index != 0:
            raise _truncated("without any answer")
        for state in choices:
            if state.finish is None and (not told or state.calls.broken()):
                raise _truncated("without a finish reason")
        self._over = True
        out: list[Event] = []
        usage: list[Event] = [] if self._usage is None else [read_usage(self._usage)]
        for state in choices:
            failed = STOP_FAULTS.get(state.finish or "")
            if failed is not None:
                message = f"the upstream stopped with finish_reason {state.finish}"
                return [*usage, Failed(Fault(failed, message, code=state.finish))]
        for state in choices:
            stopped = self._stopped(state)
            self._end_block(state, out)
            state.calls.end(stopped.reason in _CUTS, out)
            if state.cites:
                self._ledger.dropped(
                    f"/choices/{state.index}/message/annotations", "there is no text to cite"
                )
            out.append(stopped)
        return [*out, *usage, ENDED]

    def _stopped(self, state: _Choice) -> Stopped:
        word = (state.finish or "stop").lower()
        reason = STOPS.get(word, StopReason.END)
        if word not in STOPS and word not in PLAIN_ENDS:
            self._ledger.altered(
                f"/choices/{state.index}/finish_reason", "an unknown reason was taken for the end of the turn"
            )
        if reason in (StopReason.END, StopReason.TOOL_USE):
            # A forced function call ends with "stop", and some servers never say "tool_calls".
            reason = StopReason.TOOL_USE if state.calls.calls else StopReason.END
        if reason is StopReason.END and state.sequence is not None:
            reason = StopReason.STOP_SEQUENCE
        return Stopped(reason, state.finish, state.index, state.sequence)


def read_whole(body: JSONObject, exchange: Exchange, ledger: Ledger) -> list[Event]:
    """The events of a whole answer. Raises RemoteProtocolError (502) when it cannot be read."""
    return ChatReader(exchange, ledger).whole(body)


def _short_call(calls: JSON, state: _Choice) -> Sequence[Event] | None:
    """The short lane of arguments: one more piece of a call whose block is open."""
    if type(calls) is not list or len(calls) != 1:
        return None
    fragment = calls[0]
    if type(fragment) is not dict or fragment.get("id") or "custom" in fragment:
        return None
    call = state.calls.open_at(fragment.get("index"))
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


# Members that need no look beyond the official ones.
_PLAIN_FIELDS = frozenset({"role", "content", "refusal", "tool_calls", "function_call"})
_LOGPROBS = (("content", BlockKind.TEXT), ("refusal", BlockKind.REFUSAL))


def _token(token: JSONObject) -> JSONObject:
    """A token with all the members that strict clients demand."""
    if "bytes" in token and "top_logprobs" in token:
        return token
    return {"bytes": None, **token, "top_logprobs": token.get("top_logprobs") or []}


def _fills(event: Event, block: int) -> bool:
    return isinstance(event, TextDelta) and event.block == block


def _string(value: JSON) -> str | None:
    return value if type(value) is str and value else None


def _truncated(how: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the upstream's stream ended {how}", status_hint=502)


def _unreadable(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the upstream's answer cannot be read: {what}", status_hint=502)
