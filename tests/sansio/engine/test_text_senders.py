"""The fast path's two ways that end before anything is written."""

from types import SimpleNamespace
from typing import Any

from dragoman import Ledger, RequestTranslator, ResponseTranslator
from dragoman.events import ArgumentsDelta
from dragoman.protocols import PROTOCOLS

BODY = b'{"model": "m", "input": "Hi", "stream": true}'


def machine() -> Any:
    pair = {"client": "openai_responses", "upstream": "openai_chat"}
    context = RequestTranslator(**pair).translate(BODY).response_context(id="a", now=1)
    return ResponseTranslator(**pair, context=context)


def test_arguments_that_wait_for_the_end_of_their_call_are_not_sent() -> None:
    translator, sent = machine(), list[object]()
    translator._pipeline = SimpleNamespace(
        needs_text=False, calls=SimpleNamespace(fill=lambda block, texts: [])
    )
    translator._sink = SimpleNamespace(text_sender=lambda delta: sent.append)
    translator._text_sender_for(ArgumentsDelta(0, "{"))(["}"])
    assert sent == []


def test_texts_of_a_deferred_part_are_written_at_its_end() -> None:
    writer: Any = PROTOCOLS["openai_responses"].stream_writer(machine()._context, Ledger())
    writer._deferred, writer._texts = True, ["a"]
    assert (writer.send_texts(ArgumentsDelta(0, ""), ["b", "c"]), writer._texts) == (b"", ["a", "b", "c"])
