"""Runs a stream through a translator twice, with the fast path and without, and counts the frames of the fast path."""

from collections.abc import Callable

import pytest

from dragoman._engine.response import ResponseTranslator
from dragoman._ir.fast_path import DeltaTemplate, FastPath
from dragoman._ir.request import Request
from dragoman.codec import ResponseContext
from dragoman.protocols import PROTOCOLS


def both_ways(protocol: str, client: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Assert that both ways give the same bytes; return how many frames the fast path took."""
    request = Request(protocol=client, model="m", messages=(), stream=True)
    context = ResponseContext(request=request, id="abc", now=0, model="m")

    def run() -> tuple[bytes, object]:
        machine = ResponseTranslator(client=PROTOCOLS[client], upstream=PROTOCOLS[protocol], context=context)
        machine.receive_data(data)
        machine.receive_eof()
        return machine.data_to_send(), machine.outcome

    taken: list[str] = []
    learn = FastPath.learn_from

    def record(
        self: FastPath,
        raw_event: bytes,
        text: str,
        template: DeltaTemplate,
        send: Callable[[list[str]], object],
    ) -> None:
        def counted(texts: list[str]) -> None:
            taken.extend(texts)
            send(texts)

        learn(self, raw_event, text, template, counted)

    with monkeypatch.context() as patch:
        patch.setattr(FastPath, "learn_from", record)
        fast = run()
    with monkeypatch.context() as patch:
        patch.setattr(FastPath, "should_learn", lambda self: False)
        assert run() == fast
    return len(taken)
