"""Settings that refer to what a vendor has stored."""

import pytest

from dragoman._engine.request import RequestTranslator
from dragoman._ir.request import Param, Request
from dragoman._transforms.extensions import refuse_server_state
from dragoman._wire.exceptions import RequestRefused


def test_references_to_the_vendors_store_are_refused() -> None:
    held: dict[Param, str] = {"thread": "no_thread"}
    refuse_server_state(Request("toy", "m", (), params={"temperature": 1}), held)
    requested = Request("toy", "m", (), params={"thread": {"id": 1}}, param_paths={"thread": "/more/thread"})
    with pytest.raises(RequestRefused, match=r"^more\.thread: .* send all its messages") as caught:
        refuse_server_state(requested, held)
    error = caught.value
    assert (error.status, error.code, error.path) == (400, "no_thread", "/more/thread")


def test_a_translator_refuses_them() -> None:
    translator = RequestTranslator(client="anthropic_messages", upstream="openai_chat")
    with pytest.raises(RequestRefused) as caught:
        translator.translate(b'{"model":"m","messages":[],"max_tokens":1,"thread":{"id":"t"}}')
    assert (caught.value.code, caught.value.path) == ("thread_unsupported_request", "/thread")
