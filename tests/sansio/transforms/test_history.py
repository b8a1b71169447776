"""Repairs of histories: calls and results are paired, and the ledger has each repair."""

from pathlib import Path

import pytest
import rows
from core.passes import pass_context
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Media, Message, Reasoning, Request, Text, ToolCall, ToolResult
from dragoman._transforms.history import repair_history

MISSING = "No result: the conversation went on before the tool had answered."


def repaired(request: Request, ledger: Ledger | None = None) -> Request:
    return repair_history(request, pass_context(request, ledger))


def history(text: str) -> tuple[Message, ...]:
    """`a:T Cx` is an assistant's text and its call x; `u:Rx` a result; `s:T` a system text; E an empty text.

    Each letter stands for one part; `Cx*` is a call of a custom tool.
    """
    messages = []
    for at, line in enumerate(filter(None, map(str.strip, text.split("|")))):
        role, _, names = line.partition(":")
        parts = []
        for number, word in enumerate(names.split()):
            path = f"/{at}/{number}"
            kind = ToolKind.CUSTOM if word.endswith("*") else ToolKind.FUNCTION
            name = word[1:].rstrip("*")
            if word[0] == "C":
                parts.append(ToolCall(name, "f", "{}", kind, path=path))
            elif word[0] == "R":
                parts.append(ToolResult(name, (Text("r"),), kind, path=path))
            elif word[0] == "E":
                parts.append(Text("", path=path))
            elif word[0] == "M":
                parts.append(Media("image", "url", "u", path=path))
            elif word[0] == "H":
                parts.append(Reasoning("hm", path=path))
            else:
                parts.append(Text(word, path=path))
        messages.append(Message(ROLES[role], tuple(parts), f"/{at}"))
    return tuple(messages)


ROLES = {"a": "assistant", "u": "user", "s": "system", "d": "developer"}
MARKED = "<tool_result>\nr\n</tool_result>"
LETTERS = {value: key for key, value in ROLES.items()}


def reported(messages: tuple[Message, ...]) -> str:
    lines = []
    for message in messages:
        names = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                names.append("C" + part.call_id + "*" * (part.kind is ToolKind.CUSTOM))
            elif isinstance(part, ToolResult):
                missing = part.parts == (Text(MISSING, path=part.path),) and part.is_error is True
                names.append(("?" if missing else "R") + part.call_id + "*" * (part.kind is ToolKind.CUSTOM))
            else:
                text = "O" if getattr(part, "text", "") == MARKED else getattr(part, "text", "")
                names.append({Media: "M", Reasoning: "H"}.get(type(part)) or text)
        lines.append(f"{LETTERS[message.role]}:{' '.join(names)}")
    return " | ".join(lines)


def rewritten(text: str) -> tuple[str, list[str]]:
    ledger = Ledger()
    request = Request("toy", "m", history(text))
    out = repair_history(request, pass_context(request, ledger))
    assert {loss.code for loss in ledger} <= {LossCode.REPAIRED}
    if not len(ledger):
        assert out is request
    return reported(out.messages), [loss.path for loss in ledger]


def test_b8_history_repairs() -> None:
    def output_of(lines: list[str]) -> list[str]:
        text = lines[0].removeprefix("none")
        found, repairs = rewritten(text)
        return ["="] if (found, repairs) == (text, []) else [found, " ".join(repairs)]

    rows.check(Path(__file__).with_name("histories.txt"), output_of)


def test_a_plain_message_stays_what_it_was_read_from() -> None:
    plain = Message("user", (), "/1", plain_text="Go on")
    out = repaired(Request("toy", "m", (Message("assistant", (ToolCall("x", "f", "{}"),)), plain)))
    assert out.messages[-1] is plain


PART_NAMES = st.sampled_from(["t", "E", "M", "Cx", "Cy", "Cz", "Rx", "Ry", "Rz"])
LINES = st.tuples(st.sampled_from("auuas"), st.lists(PART_NAMES, max_size=4)).map(
    lambda line: f"{line[0]}:{' '.join(line[1])}"
)


@given(st.lists(LINES, max_size=8).map(" | ".join))
@example("a:Cz | s:Rz t")
def test_every_history_becomes_valid_and_loses_nothing_silently(text: str) -> None:
    ledger = Ledger()
    before = Request("toy", "m", history(text))
    after = repair_history(before, pass_context(before, ledger))
    assert repaired(after) is after
    ids = [part.call_id for each in after.messages for part in each.parts if isinstance(part, ToolCall)]
    translated_response = [
        part.call_id for each in after.messages for part in each.parts if isinstance(part, ToolResult)
    ]
    in_turns = [
        part.call_id
        for each in after.messages
        if each.role == "assistant"
        for part in each.parts
        if isinstance(part, ToolCall)
    ]
    assert len(set(ids)) == len(ids) or any(each.role != "assistant" for each in after.messages)
    assert sorted(translated_response) == sorted(in_turns)
    arrived = {part.path for each in after.messages for part in each.parts}
    recorded_paths = {loss.path for loss in ledger}
    for message in before.messages:
        assert message.parts or message.path in recorded_paths
        for part in message.parts:
            assert part.path in arrived or part.path in recorded_paths


@pytest.mark.promise("R14")
@given(st.lists(LINES, max_size=8).map(" | ".join))
@example("a:Cy | u:Ry t | a:")
def test_the_new_history_is_a_prefix_of_the_next_one(text: str) -> None:
    """Prompt caches depend on it: the same repair is made again when the model has answered."""
    turns = history(text)
    whole = repaired(Request("toy", "m", turns)).messages
    for end in range(1, len(turns)):
        if turns[end].role == "assistant" and turns[end - 1].role != "assistant":
            part = repaired(Request("toy", "m", turns[:end])).messages
            assert whole[: len(part)] == part
