"""Every stop reason has a name in every protocol, and what is not written by its own name is known to be lossy."""

from dragoman import StopReason
from dragoman.protocols.anthropic_messages import tables as messages
from dragoman.protocols.gemini import tables as gemini
from dragoman.protocols.openai_chat import tables as chat
from dragoman.protocols.openai_responses import tables as responses

# Responses has no reason for a response that is complete.
COMPLETED = {StopReason.END, StopReason.TOOL_USE, StopReason.STOP_SEQUENCE} | responses.LOSSY_STOP_REASONS
# Gemini's reasons that are refusals, and those that are errors.
FILTERS = {
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "ESCALATION"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
}
BROKEN = {
    *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
    *("MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE"),
}


def test_every_reason_is_written() -> None:
    assert set(messages.STOP_REASON_NAMES) == set(StopReason)
    assert set(chat.STOP_REASON_NAMES) == set(StopReason)
    assert set(responses.STOP_REASON_NAMES) | COMPLETED == set(StopReason)
    assert not responses.STOP_REASON_NAMES.keys() & COMPLETED


def test_what_messages_writes_is_read_as_the_same_reason() -> None:
    for reason, name in messages.STOP_REASON_NAMES.items():
        assert messages.STOP_REASONS[name] is reason, reason
        assert name == next(each for each in messages.STOP_REASONS if messages.STOP_REASONS[each] is reason)


def test_what_other_protocols_write_for_a_reason_they_do_not_have_is_another_reason() -> None:
    for reason, name in chat.STOP_REASON_NAMES.items():
        if chat.STOP_REASONS.get(name, StopReason.END) is not reason:
            assert reason in chat.LOSSY_STOP_REASONS | {
                StopReason.CONTEXT_WINDOW,
                StopReason.STOP_SEQUENCE,
            }, reason
    for reason, name in responses.STOP_REASON_NAMES.items():
        if responses.STOP_REASONS[name] is not reason:
            assert reason is StopReason.CONTEXT_WINDOW


def test_no_filter_and_no_failure_of_gemini_is_read_as_another_end() -> None:
    found = {name for name, reason in gemini.STOP_REASONS.items() if reason is StopReason.CONTENT_FILTER}
    assert found == FILTERS
    assert gemini.ERROR_FINISH_REASONS | {"UNEXPECTED_TOOL_CALL"} == BROKEN
