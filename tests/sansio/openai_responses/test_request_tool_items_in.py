"""Hosted calls in a client's input: a text for other protocols (request_in.txt), and themselves for their own."""

from core.passes import pass_context
from core.rows import TESTS, rows_of
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._transforms.extensions import strip_extensions
from dragoman._wire.json import decode
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities


def test_hosted_calls_are_altered_for_others_and_return_whole_to_the_same_protocol() -> None:
    [row] = [
        row
        for row in rows_of(TESTS / "sansio/openai_responses/request_in.txt")
        if row.heads == ["# a hosted call is a text for other protocols"]
    ]
    for body in (decode(line.encode()) for line in row.inputs):
        altered, unchanged = Ledger(), Ledger()
        request = read_same_protocol(SPEC, body)
        strip_extensions(request, pass_context(request, altered, client=SPEC))
        assert [(loss.code.value, loss.path) for loss in altered] == [("altered", "/input/0")]
        assert SPEC.write_request(request, Capabilities(), unchanged)["input"] == body["input"]
        assert list(unchanged) == []
    assert len(row.inputs) > 25
