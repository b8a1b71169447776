"""The shapes agree with the vendors' own types, and their notation says what it means."""

# ruff: noqa: E501 -- the tables are read by row

from types import NoneType
from typing import Any, get_args

import anthropic.types as m
import anthropic.types.raw_message_delta_event as m_delta
import openai.types.chat.chat_completion as c_whole
import openai.types.chat.chat_completion_chunk as c_chunk
import openai.types.responses as r
import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from openai.types.shared import ErrorObject
from oracle.types import EXTENSIONS, PRESENT
from pydantic import BaseModel

from dragoman.lint import chat, messages
from dragoman.lint.responses_shapes import SHAPES as RESPONSES
from dragoman.lint.shapes import Shapes

SHAPES = {"chat": chat.SHAPES, "messages": messages.SHAPES, "responses": RESPONSES}


def by_tag(union: Any) -> dict[str, type[BaseModel]]:
    """Return the members of a discriminated union by their `type`."""
    members = [each for each in get_args(get_args(union)[0]) if issubclass(each, BaseModel)]
    return {tag: each for each in members for tag in get_args(each.model_fields["type"].annotation)}


NAMED: list[tuple[str, str, type[BaseModel]]] = [
    ("chat", "Chunk", ChatCompletionChunk),
    ("chat", "ChunkChoice", c_chunk.Choice),
    ("chat", "Delta", c_chunk.ChoiceDelta),
    ("chat", "Completion", ChatCompletion),
    ("chat", "Choice", c_whole.Choice),
    ("chat", "Message", ChatCompletionMessage),
    ("chat", "Usage", CompletionUsage),
    ("chat", "ErrorObject", ErrorObject),
    ("messages", "Message", m.Message),
    ("messages", "Usage", m.Usage),
    ("messages", "EndDelta", m_delta.Delta),
    ("messages", "DeltaUsage", m.MessageDeltaUsage),
    ("responses", "Response", r.Response),
    ("responses", "Usage", r.ResponseUsage),
    ("responses", "ResponseError", r.ResponseError),
]
UNIONS = [
    ("messages", "Event", m.RawMessageStreamEvent),
    ("messages", "Block", m.ContentBlock),
    ("messages", "Delta", m.RawContentBlockDelta),
    ("responses", "Event", r.ResponseStreamEvent),
    ("responses", "Item", r.ResponseOutputItem),
]
CASES = NAMED + [
    (protocol, SHAPES[protocol].tags_of(union).get(tag, f"no {tag}"), model)
    for protocol, union, types in UNIONS
    for tag, model in by_tag(types).items()
]

# Where a shape is looser than the type, with the reason.
LOOSER = {
    # One shape for events that differ in a member.
    ("Audio", "delta"), ("ShellCommand", "command"), ("ShellCommand", "delta"), ("ShellOutput", "delta"), ("ShellOutput", "output"),
    ("FunctionOutput", "call_id"), ("FunctionOutput", "caller"),
    # Searches are added without their action.
    ("WebSearch", "action"),
    # These are required and may be null, which the type does not show, only the order of its members.
    ("ToolSearchOutput", "call_id"), ("ImageCall", "result"), ("CodeCall", "code"), ("CodeCall", "outputs"), ("ShellCall", "environment"),
    ("ShellCallOutput", "max_output_length"),
}  # fmt: skip
# Members that are only in one of the types that share a shape, and those of images, which are not listed.
SHARED = {"ImageCall", "Audio", "ShellCommand", "ShellOutput", "FunctionOutput", "Progress", "SummaryPart"}
# Sent by the vendor's server, or on the beta surface, beside the types.
BESIDE = {
    "obfuscation", "billing", "content_filters", "context_management", "input_transformations", "iterations", "fallback_credit", "fallback_credit_token",
    "fallback_has_prefill_claim", "recommended_model", "name", "type", "estimated_tokens", "status",
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "shape", "model"),
    [pytest.param(*case, id=f"{case[1]}-{case[2].__name__}") for case in CASES],
)
def test_a_shape_is_the_vendors_type(protocol: str, shape: str, model: type[BaseModel]) -> None:
    members = SHAPES[protocol].members_of(shape)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if shape == "ImageCall" and key not in members:
            continue
        required, nullable = members[key]
        if (shape, key) not in LOOSER:
            assert required == (field.is_required() or key in PRESENT.get(model, ())), key
        if required and (shape, key) not in LOOSER:
            assert nullable == (NoneType in get_args(field.annotation)), key
    known = {field.alias or name for name, field in model.model_fields.items()} | EXTENSIONS.get(model, set())
    assert shape in SHARED or set(members) - known <= BESIDE


NOTATION = Shapes("""
    Thing: a int, b? str, c "x" "y"?, d? [Part], e? num | [bool], f? obj, g? any
    Open: a int, ...
    Part = Text | Image
    Text: type "text", text str
    Image: type "image" "photo"
    Holder: thing Thing
    Empty:
    Loose: a~ int, b~ Thing
""")
MATCHING: dict[str, Any] = {"a": 1, "c": None}


@pytest.mark.parametrize(
    ("shape", "value", "mismatches"),
    [
        ("Thing", MATCHING, []),
        ("Thing", {**MATCHING, "b": None, "c": "x", "d": [{"type": "text", "text": ""}, {"type": "photo"}], "e": 1.5, "f": {}, "g": []}, []),
        ("Thing", {**MATCHING, "e": [True]}, []),
        ("Thing", {"c": "x"}, ["required /a"]),
        ("Thing", {"a": 1}, ["nullable /c"]),
        ("Thing", {**MATCHING, "a": None}, ["type /a"]),
        ("Thing", {**MATCHING, "a": True}, ["type /a"]),
        ("Thing", {**MATCHING, "a": 1.5}, ["type /a"]),
        ("Thing", {**MATCHING, "b": 1}, ["type /b"]),
        ("Thing", {**MATCHING, "c": "z"}, ["value /c"]),
        ("Thing", {**MATCHING, "c": 1}, ["type /c"]),
        ("Thing", {**MATCHING, "d": {}}, ["type /d"]),
        ("Thing", {**MATCHING, "d": [1, {"type": "x"}, {}, {"type": "text"}]}, ["type /d/0", "unknown-type /d/1/type", "required /d/2/type", "required /d/3/text"]),
        ("Thing", {**MATCHING, "e": ["x"]}, ["type /e/0"]),
        ("Thing", {**MATCHING, "h": 1, "i/j": 1}, ["unknown-member /h", "unknown-member /i~1j"]),
        ("Open", {"a": 1, "h": 1}, []),
        ("Holder", {"thing": []}, ["type /thing"]),
        ("Empty", {}, []),
        ("Empty", {"a": 1}, ["unknown-member /a"]),
        ("Loose", {}, ["tolerated /a", "tolerated /b"]),
        ("Loose", {"a": "1", "b": []}, ["tolerated /a", "tolerated /b"]),
        ("Loose", {"a": None, "b": {"a": "1", "c": 1}}, ["tolerated /a", "type /b/a", "type /b/c"]),
    ],
)  # fmt: skip
def test_the_notation(shape: str, value: Any, mismatches: list[str]) -> None:
    found = sorted(f"{each.kind} {each.pointer}" for each in NOTATION.check(shape, value))
    assert found == sorted(mismatches)


def test_what_was_expected_is_described() -> None:
    value = {"a": "x", "c": 1, "d": 1, "e": "x", "f": 1}
    assert {each.pointer: each.detail for each in NOTATION.check("Thing", value)} == {
        "/a": "a string, expected an integer",
        "/c": "a number, expected one of its values",
        "/d": "a number, expected a list",
        "/e": "a string, expected a number or a list",
        "/f": "a number, expected an object",
    }
