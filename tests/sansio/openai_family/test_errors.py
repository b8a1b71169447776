"""Errors of OpenAI's protocols are read from any body, and written in the official form."""

from typing import get_args

import msgspec
import pytest
from openai.types.responses import ResponseError

from dragoman._wire.errors import ErrorKind, WireError
from dragoman.protocols import UPSTREAMS
from dragoman.protocols._openai.errors import RESPONSE_ERROR_CODES
from dragoman.protocols.openai_chat import SPEC


def test_both_protocols_have_the_same_errors() -> None:
    chat, responses = UPSTREAMS["openai_chat"], UPSTREAMS["openai_responses"]
    for name in ("read_error", "write_error", "is_native_error"):
        assert getattr(chat, name) is getattr(responses, name)


@pytest.mark.promise("S18")
@pytest.mark.parametrize("protocol", UPSTREAMS)
def test_long_messages_are_cut_and_bytes_that_are_no_text_are_not_shown(protocol: str) -> None:
    read = UPSTREAMS[protocol].read_error
    assert read(500, b"x" * 9999).message == "x" * 2000
    assert read(500, msgspec.json.encode({"error": {"message": "x" * 9999}})).message == "x" * 2000
    for sent in (b"\xff\xfe", b"\xff\x00"):
        assert read(503, sent).message == "the upstream returned status 503 and no readable message"


def test_every_kind_is_written_as_an_official_error_object(subtests: pytest.Subtests) -> None:
    for kind in list(ErrorKind):
        with subtests.test(kind=kind):
            status, sent = SPEC.write_error(WireError(kind, "m"), None)
            assert 400 <= status < 600
            assert SPEC.is_native_error(sent)


def test_the_list_of_codes_is_the_vendors() -> None:
    assert frozenset(get_args(ResponseError.model_fields["code"].annotation)) == RESPONSE_ERROR_CODES
