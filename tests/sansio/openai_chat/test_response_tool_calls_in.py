"""Tool calls of a response, from the fragments of all kinds of servers (their rows are in response_in.txt)."""

from dragoman._ir.events import ToolKind
from dragoman.protocols.openai_chat.response_tool_calls_in import StreamedCall


def test_the_input_of_a_custom_tool_may_always_go_on() -> None:
    for kind, is_complete in ((ToolKind.FUNCTION, True), (ToolKind.CUSTOM, False)):
        made = StreamedCall(kind, 0)
        made.pieces.append("{}")
        assert made.is_complete() is is_complete


def test_arguments_that_come_once_more_are_taken_out() -> None:
    """Of the fast path. How single fragments are read is in the rows."""
    call = StreamedCall(ToolKind.FUNCTION, 0)
    call.pieces.append('{"')
    for texts, left in (
        (['b":'], ['b":']),
        (['{"'], ['{"']),
        (['":1}}', '{"b":{"":1}}', '{"b":{"":1}}', "}"], ['":1}}', "}"]),
    ):
        call.add(texts)
        assert texts == left
