"""Tool calls of a response, from the fragments of all kinds of servers (their rows are in response_in.txt)."""

from dragoman._ir.events import ToolKind
from dragoman.protocols.openai_chat.response_tool_calls_in import StreamedCall


def test_the_input_of_a_custom_tool_may_always_go_on() -> None:
    for kind, is_complete in ((ToolKind.FUNCTION, True), (ToolKind.CUSTOM, False)):
        made = StreamedCall(kind, 0)
        made.pieces.append("{}")
        assert made.is_complete() is is_complete
