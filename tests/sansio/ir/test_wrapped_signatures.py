"""Wrapped signatures: there and back unchanged, and nothing that was not wrapped here."""

from base64 import b64decode, urlsafe_b64encode

import pytest
from core.chop import PROPERTY
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.events import Signature
from dragoman._ir.wrapped_signatures import (
    LIST_MARKER,
    LIST_PREFIX,
    WRAPPED_PREFIX,
    Signer,
    phase_signature,
    unwrap_phase,
)
from dragoman._wire.json import encode

SIGNATURE = Signature(
    "anthropic_messages", {"type": "thinking", "thinking": "é😀", "signature": "abc=="}, "model-1"
)
PLAIN, KEYED, OTHER = Signer(), Signer(secret=b"hush-hush"), Signer(secret=b"another")


def packed(value: object) -> str:
    return WRAPPED_PREFIX + urlsafe_b64encode(encode(value)).rstrip(b"=").decode()


@pytest.mark.parametrize("signer", [PLAIN, KEYED], ids=["no secret", "secret"])
def test_round_trip(signer: Signer) -> None:
    text = signer.wrap(SIGNATURE)
    assert Signer.is_wrapped(text)
    assert text.isascii()
    assert signer.unwrap(text) == SIGNATURE
    assert signer.wrap(SIGNATURE) == text  # the same turn gives the same bytes


@pytest.mark.parametrize("signer", [PLAIN, KEYED], ids=["no secret", "secret"])
def test_a_list_is_base64(signer: Signer) -> None:
    several = [SIGNATURE, Signature("openai_responses", {"thinking": "cut \ud83d"})]
    text = signer.wrap_list(several)
    assert Signer.is_wrapped(text)
    assert LIST_MARKER.match(f'"{text}'.encode())
    assert "-" not in text
    # google-genai decodes it, and encodes it again in the alphabet for URLs.
    for sent in (text, text.rstrip("="), urlsafe_b64encode(b64decode(text, validate=True)).decode()):
        assert signer.unwrap_list(sent) == several
        assert signer.unwrap(sent) == SIGNATURE
    assert OTHER.unwrap_list(text) == ()
    assert signer.unwrap_list(text[:-8]) == ()
    assert signer.unwrap_list(LIST_PREFIX + "!") == ()


natives = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@PROPERTY
@given(st.text(max_size=8), natives, st.text(max_size=8), st.none() | st.binary(min_size=1, max_size=8))
def test_any_signature(origin: str, native: object, model: str, secret: bytes | None) -> None:
    signature = Signature(origin, native, model)
    assert Signer(secret).unwrap(Signer(secret).wrap(signature)) == signature


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="None is for no MAC"):
        Signer(b"")


def test_padding_that_a_client_adds_does_not_count() -> None:
    for text in ("", "a", "ab"):
        signature = Signature("gemini", text)
        assert PLAIN.unwrap(PLAIN.wrap(signature) + "==") == signature


def test_lone_surrogates_travel() -> None:
    signature = Signature("a", {"thinking": "cut \ud83d"})
    assert KEYED.unwrap(KEYED.wrap(signature)) == signature


def test_the_mac() -> None:
    text = KEYED.wrap(SIGNATURE)
    assert OTHER.unwrap(text) is None
    assert KEYED.unwrap(PLAIN.wrap(SIGNATURE)) is None  # no MAC at all
    assert KEYED.unwrap(OTHER.wrap(SIGNATURE)) is None
    assert KEYED.unwrap(text.rpartition(".")[0]) is None
    assert KEYED.unwrap(text.rpartition(".")[0] + ".") is None
    assert PLAIN.unwrap(text) == SIGNATURE  # without a secret it is not checked


def test_every_changed_character_is_detected() -> None:
    text = KEYED.wrap(SIGNATURE)
    for at in range(len(WRAPPED_PREFIX), len(text)):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        assert KEYED.unwrap(changed) is None
        assert KEYED.unwrap(text[:at]) is None
    assert KEYED.unwrap(text + "A") is None
    assert KEYED.unwrap(text + "é") is None


NOT_OURS: list[str] = [
    "",
    "EqQBCkYIBRgCKkAx",  # a vendor's own signature
    WRAPPED_PREFIX[:-1],
    WRAPPED_PREFIX,
    WRAPPED_PREFIX + "!!!!",
    WRAPPED_PREFIX + "é",
    WRAPPED_PREFIX + "\ud83d",
    WRAPPED_PREFIX + "A",
    WRAPPED_PREFIX + urlsafe_b64encode(b"no json").decode(),
    WRAPPED_PREFIX + urlsafe_b64encode(b"\xff\xff\xff").decode(),
    packed("text"),
    packed(7),
    packed([1]),
    packed({}),
    packed({"o": "a", "m": "b"}),
    packed({"o": 1, "m": "b", "n": {}}),
    packed({"o": "a", "m": None, "n": {}}),
    PLAIN.wrap(SIGNATURE) + "\n",
    PLAIN.wrap(SIGNATURE) + "!!!!",
    PLAIN.wrap(SIGNATURE).replace("drg1.", "drg1. "),
    PLAIN.wrap(SIGNATURE)[:-5],
]


def test_not_ours(subtests: pytest.Subtests) -> None:
    for text in NOT_OURS:
        with subtests.test(text=text):
            assert PLAIN.unwrap(text) is None
            assert KEYED.unwrap(text) is None


def test_is_wrapped_checks_only_the_form() -> None:
    assert Signer.is_wrapped(WRAPPED_PREFIX + "whatever")
    assert not Signer.is_wrapped("whatever")


def test_no_repr_shows_the_secret() -> None:
    assert repr(KEYED) == str(KEYED) == f"{KEYED}" == "Signer(secret=...)"
    assert repr(PLAIN) == "Signer(secret=None)"
    assert "hush" not in repr([KEYED])
    assert "hush" not in KEYED.wrap(SIGNATURE)


def test_only_a_signature_that_was_made_here_carries_a_phase() -> None:
    carrier = phase_signature("commentary")
    assert unwrap_phase(carrier) == "commentary"
    assert unwrap_phase(Signature("openai_responses", carrier.native)) is None
