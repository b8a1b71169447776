"""Read Chat Completions responses, streamed or whole.

`ChatReader` reads the members of a chunk and leaves its choices to `ChoiceReader`. The finish reason is held back until
[DONE] or the end of the stream, because later chunks may correct it and bring the usage. A whole response is read as
one chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import BlockKind, Event, Usage
from dragoman._ir.fast_path import Delta, DeltaTemplate
from dragoman._ir.losses import Ledger
from dragoman._ir.shape import note_unread, response_shape
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import RemoteProtocolError, unreadable_response
from dragoman._wire.json import JSONObject, decode, kind_of, text_or_none
from dragoman._wire.limits import CHOICES, LIMIT_EXCEEDED
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols._openai.errors import parse_error
from dragoman.protocols._openai.settings import fit_tier
from dragoman.protocols.openai_chat.errors import has_error
from dragoman.protocols.openai_chat.response_content_in import ChoiceReader
from dragoman.protocols.openai_chat.response_tool_calls_in import IdAllocator
from dragoman.protocols.openai_chat.shapes import CHOICE_SHAPE, READ_SHAPE, RESPONSE_SHAPE
from dragoman.protocols.openai_chat.tables import ERROR_FINISH_REASONS, NAME, TITLE
from dragoman.protocols.openai_chat.usage import read_usage, reported_usage

_RESPONSE, _CHOICE = response_shape(RESPONSE_SHAPE), response_shape(CHOICE_SHAPE)

_NO_EVENTS: tuple[Event, ...] = ()
_NO_FIELDS: JSONObject = {}
_PADDING = b"obfuscation"
# Together repeats the text next to the delta, which has the number of the token.
_TEXT_TEMPLATE = DeltaTemplate(b"content", number=b"token_id", padding=_PADDING, repeats=(b"text",))
# The members that every chunk has, and those of a choice. They lose nothing if `usage` and `logprobs` are null.
_USUAL_CHUNK = frozenset({"id", "object", "created", "model", "choices", "usage"})
_USUAL_CHOICE = frozenset({"index", "delta", "message", "logprobs", "finish_reason"})


class ChatReader:
    """Reads one stream. `read` returns the events of a frame, `eof` the events of the stream's end."""

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._context = context
        self._ledger = ledger
        self._ids = IdAllocator(context.id)
        self._choices: dict[int, ChoiceReader] = {}
        self._model = ""
        self._is_whole = False
        self._started = False
        self._start_tier: str | None = None  # the service tier of the start
        self._ended = False
        self._tier: str | None = None  # the one that was reported last
        self._usage: JSONObject | None = None
        self._usage_came_last = False

    def read(self, frame: Frame) -> Sequence[Event]:
        data = frame.data
        if self._ended or not data.strip():  # we have seen heartbeats without data
            return _NO_EVENTS
        if data.startswith(b"[DONE]"):  # as OpenAI's SDKs read it: some servers put blanks behind it
            return self._finish(certain=True)
        try:
            chunk = decode(data)
        except RemoteProtocolError as error:
            if frame.event != b"error":
                reason = "" if error.code == LIMIT_EXCEEDED else "a chunk is not valid JSON: "
                raise unreadable_response(reason + error.message) from None
            chunk = {"error": data.decode("utf-8", "replace")}
        if type(chunk) is not dict:
            if frame.event != b"error":
                raise unreadable_response(f"a chunk is {kind_of(chunk)}")
            chunk = {"error": chunk}
        return self._read_chunk(chunk, frame.event)

    def eof(self) -> Sequence[Event]:
        if self._ended:
            return _NO_EVENTS
        return self._finish(certain=False)

    def template_for(self, delta: Delta) -> DeltaTemplate | None:
        """Return how to read later chunks of this block: they differ in their text only, and in padding at OpenAI."""
        states = self._choices.values()
        if type(delta) is events.ArgumentsDelta:
            call = next(call for state in states if (call := state.calls.by_block.get(delta.block)))
            return None if call.may_be_next else DeltaTemplate(b"arguments", call.add, padding=_PADDING)
        state = next(state for state in states if state.block == delta.block)
        if type(delta) is events.TextDelta:
            return _TEXT_TEMPLATE if state.kind is BlockKind.TEXT else None
        parts = state.reasoning.template_parts()
        if parts is None:
            return None
        (key, *repeats), record = parts
        return DeltaTemplate(key, record, padding=_PADDING, repeats=tuple(repeats))

    def whole(self, body: JSONObject) -> list[Event]:
        """Return the events of a whole response."""
        self._is_whole = True
        choices = body.get("choices")
        if (type(choices) is not list or not choices) and not has_error(body):
            raise unreadable_response("it has no choices")
        out = self._read_chunk(body, b"")
        if not self._ended:
            out += self._finish(certain=True)
        return out

    def _read_chunk(self, chunk: JSONObject, event: bytes) -> list[Event]:
        """Read any chunk."""
        out: list[Event] = []
        choices, extra = chunk.get("choices"), _NO_FIELDS
        usage = chunk.get("usage")
        is_usual = (
            choices is not None and usage is None and event != b"error" and chunk.keys() <= _USUAL_CHUNK
        )
        if not is_usual:
            if has_error(chunk) or event == b"error":
                return self._fail(parse_error(chunk, None), chunk)
            unread = chunk
            if self._context.rewritten:
                extra = {
                    key: value for key, value in chunk.items() if key not in READ_SHAPE and value is not None
                }
                unread = {key: value for key, value in chunk.items() if key not in extra}
            note_unread(unread, _RESPONSE, "", self._ledger)
            if usage is not None or "x_groq" in chunk:
                self._note_usage(chunk)
            if chunk.get("service_tier") is not None:
                self._note_tier(chunk)
        if not self._started and (choices or chunk.get("id")):
            self._start(chunk, out)
        if type(choices) is list:
            for position, choice in enumerate(choices):
                if type(choice) is not dict:
                    raise unreadable_response(f"a choice is {kind_of(choice)}")
                self._read_choice(choice, position, out)
        if is_usual:
            return out
        moderation = chunk.get("moderation")
        if moderation is not None and self._started:
            out.append(events.Opaque(NAME, "moderation", moderation, "/moderation", round_trip=False))
        if self._started:
            for key, value in extra.items():
                out.append(events.Opaque(NAME, key, value, f"/{key}", round_trip=False))
        if "citations" in chunk or "search_results" in chunk:
            self._cite_pages(chunk, out)
        return out

    def _cite_pages(self, chunk: JSONObject, out: list[Event]) -> None:
        """Cite the pages that are listed next to the choices in the first choice."""
        choice = self._choices.get(0)
        if choice is None:
            self._ledger.dropped("/citations", "they came before the text that cites them")
            return
        choice.cite_pages(_listed_pages(chunk, self._ledger), out)

    def _start(self, chunk: JSONObject, out: list[Event]) -> None:
        self._started = True
        self._start_tier = self._tier
        self._model = text_or_none(chunk.get("model")) or self._context.request.model
        created = chunk.get("created")
        out.append(
            events.Started(
                text_or_none(chunk.get("id")) or f"chatcmpl-{self._context.id}",
                self._model,
                created if type(created) is int else None,
                self._tier,
            )
        )

    def _note_tier(self, chunk: JSONObject) -> None:
        tier = fit_tier(text_or_none(chunk.get("service_tier")), "/service_tier", self._ledger, TITLE)
        self._tier = tier or self._tier

    def _usage_events(self) -> list[Event]:
        """Return the usage if it is known, with the service tier if that changed after the start."""
        usage = None if self._usage is None else read_usage(self._usage)
        if self._tier != self._start_tier:
            usage = msgspec.structs.replace(usage or Usage(), service_tier=self._tier)
        return [] if usage is None else [usage]

    def _note_usage(self, chunk: JSONObject) -> None:
        usage = reported_usage(chunk)
        if usage is not None:
            self._usage = usage
            self._usage_came_last = True

    def _fail(self, error: WireError, chunk: JSONObject) -> list[Event]:
        """End the response with an error. The usage so far still counts."""
        self._ended = True
        self._note_usage(chunk)
        return [*(self._usage_events() if self._started else ()), events.Failed(error)]

    def _read_choice(self, choice: JSONObject, position: int, out: list[Event]) -> None:
        self._usage_came_last = False
        index = choice.get("index")
        if type(index) is not int or index < 0:
            # GitHub Copilot puts the text of a whole message and its calls into two choices without an index
            # (recorded in 2025).
            index = 0 if self._context.request.params.get("n") in (None, 1) else position
        state = self._choices.get(index)
        delta = choice.get("delta")
        # Perplexity's whole responses have an empty delta besides (recorded in June 2026).
        if self._is_whole or (delta is None and state is None):
            delta = choice.get("message") or delta
        if delta is None and type(choice.get("text")) is str:
            delta = {"content": choice["text"]}  # of the older Completions, as some servers answer
        if state is None:
            CHOICES.check(len(self._choices) + 1, "/choices")
            state = self._choices[index] = ChoiceReader(
                index, f"/choices/{index}", self._ids, self._model, self._ledger
            )
        logprobs = choice.get("logprobs")
        is_usual = choice.keys() <= _USUAL_CHOICE
        if not is_usual or logprobs is not None:
            note_unread(choice, _CHOICE, state.path, self._ledger)
        start = len(out)
        if type(delta) is dict:
            state.read_delta(delta, whole=self._is_whole or "delta" not in choice, out=out)
        elif delta is not None:
            raise unreadable_response(f"a delta is {kind_of(delta)}")
        if type(logprobs) is dict:
            state.read_logprobs(logprobs, out, start)
        finish = choice.get("finish_reason")
        if type(finish) is str and finish:  # "" is the same as null
            state.finish_reason = finish
        if is_usual:
            return
        native = text_or_none(choice.get("native_finish_reason"))
        state.native_finish_reason = native or state.native_finish_reason
        self._usage = reported_usage(choice) or self._usage
        # vLLM, and SGLang under the other name, report the sequence that matched, or the number of the last token
        # (seen in recorded responses, November 2026).
        stop = choice.get("stop_reason") or choice.get("matched_stop")
        if type(stop) is not str:
            return
        requested = self._context.request.params.get("stop")
        if stop in ([requested] if type(requested) is str else requested or ()):
            state.sequence = stop
        else:
            self._ledger.dropped(f"{state.path}/stop_reason", "not a requested stop sequence")

    def _finish(self, *, certain: bool) -> list[Event]:
        """Close the response. `certain` is true after [DONE] or a whole body, false at the bare end of a stream."""
        is_complete = certain or self._usage_came_last
        choices = list(map(self._choices.__getitem__, sorted(self._choices)))
        if not choices or choices[0].index != 0:
            raise _truncated("without any choices", certain)
        for state in choices:
            if state.finish_reason is None and (not is_complete or state.calls.has_partial_arguments()):
                raise _truncated("without a finish reason", certain)
        self._ended = True
        out: list[Event] = []
        usage = self._usage_events()
        for state in choices:
            kind = ERROR_FINISH_REASONS.get(state.finish_reason or "")
            if kind is not None:
                message = f"the upstream stopped with finish_reason {state.finish_reason}"
                return [*usage, events.Failed(WireError(kind, message, code=state.finish_reason))]
        for state in choices:
            state.end(out)
        return [*out, *usage, events.ENDED]


def read_whole(body: JSONObject, context: ResponseContext, ledger: Ledger) -> list[Event]:
    """Return the events of a whole response. Raises RemoteProtocolError (502) if it cannot be read."""
    return ChatReader(context, ledger).whole(body)


def _truncated(how: str, certain: bool) -> RemoteProtocolError:
    """Return the error for a response that ended early. certain: it is whole, and therefore cannot be read."""
    subject = "it" if certain else "the upstream's stream"
    return unreadable_response(f"{subject} ended {how}")


# Where search servers list pages next to the choices. The first has titles, the second may be plain URLs.
_PAGE_LISTS = ("search_results", "citations")
_PAGE_FIELDS = {"url", "title"}


def _listed_pages(body: JSONObject, ledger: Ledger) -> list[JSONObject]:
    """Return the listed pages in the form of annotations, each URL once."""
    found: dict[str, JSONObject] = {}
    for key in _PAGE_LISTS:
        pages = body.get(key)
        lossy = pages is not None and type(pages) is not list
        for each in pages if type(pages) is list else ():
            page = each if type(each) is dict else {"url": each}
            url, title = text_or_none(page.get("url")), text_or_none(page.get("title"))
            if url is not None:
                found.setdefault(url, {"type": "url_citation", "url_citation": {"url": url, "title": title}})
            lossy = lossy or url is None or not page.keys() <= _PAGE_FIELDS
        if lossy:
            ledger.altered(f"/{key}", "reported as citations: only URL and title were kept")
    return list(found.values())
