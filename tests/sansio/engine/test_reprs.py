"""How machines and their values show themselves: with names and states, without content and secrets."""

import pytest

from dragoman import (
    EventReader,
    EventWriter,
    FanOut,
    Relay,
    RequestTranslator,
    ResponseTranslator,
    Signer,
    peek,
)

PAIR = {"client": "openai_chat", "upstream": "anthropic_messages"}
BODY = b'{"model":"m","seed":1,"messages":[{"role":"user","content":"private"}]}'
TRANSLATED = RequestTranslator(**PAIR).translate(BODY, model="big")
CONTEXT = TRANSLATED.response_context(id="a1", now=0, signer=Signer(b"secret"))


REPRS: list[tuple[object, str]] = [
    (RequestTranslator(**PAIR), "<RequestTranslator openai_chat -> anthropic_messages>"),
    (TRANSLATED, f"<TranslatedRequest translated, {len(TRANSLATED.body)} bytes for big, 1 losses>"),
    (TRANSLATED.losses, "<Ledger with 1 losses>"),
    (CONTEXT, "<ResponseContext a1 of m>"),
    (peek(BODY), "<RequestHead of m with model, seed, messages>"),
    (ResponseTranslator(**PAIR, context=CONTEXT), "<ResponseTranslator anthropic_messages -> openai_chat, open>"),
    (FanOut(**PAIR, context=CONTEXT, count=2), "<FanOut anthropic_messages -> openai_chat, 0 of 2 ended, open>"),
    (Relay(protocol="openai_chat", context=CONTEXT), "<Relay openai_chat, open>"),
    (EventReader("openai_chat"), "<EventReader openai_chat, idle>"),
    (EventWriter("simple_chat", id="a1", now=0, model="m"), "<EventWriter simple_chat, idle>"),
    (Signer(b"secret"), "Signer(secret=...)"),
]  # fmt: skip


def test_repr(subtests: pytest.Subtests) -> None:
    for value, shown in REPRS:
        with subtests.test(shown=shown):
            assert repr(value) == shown
