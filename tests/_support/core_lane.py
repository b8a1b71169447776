"""Runs a stream through a translator twice, with the fast lane and without, and counts what the lane took."""

import pytest

from dragoman._engine.response import ResponseTranslator
from dragoman._ir.fast_path import Lane
from dragoman._ir.request import Request
from dragoman.codec import Exchange
from dragoman.protocols import REGISTRY


def both_ways(protocol: str, client: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Asserts that both ways give the same bytes; returns how many frames the lane took."""
    request = Request(protocol=client, model="m", messages=(), raw={}, stream=True)
    exchange = Exchange(request=request, id="abc", now=0, model="m")

    def run() -> tuple[bytes, object]:
        machine = ResponseTranslator(REGISTRY[protocol], REGISTRY[client], exchange)
        machine.receive_data(data)
        machine.receive_eof()
        return machine.data_to_send(), machine.outcome

    taken: list[str] = []
    learn = Lane.keep

    def keep(self: Lane, *args: object) -> None:
        learn(self, *args)  # type: ignore[arg-type]
        text_of = self.text_of
        if text_of is not None:

            def counted(piece: bytes) -> str | None:
                text = text_of(piece)
                if text is not None:
                    taken.append(text)
                return text

            self.text_of = counted

    with monkeypatch.context() as patch:
        patch.setattr(Lane, "keep", keep)
        fast = run()
    with monkeypatch.context() as patch:
        patch.setattr(Lane, "wants", lambda self: False)
        assert run() == fast
    return len(taken)
