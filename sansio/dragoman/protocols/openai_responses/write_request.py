"""Request -> body for a Responses upstream.

Strategy: items, tools and settings each have a writer. Towards an upstream that the client speaks to in its own
protocol, what the document has no form for is printed again from `extra`, opaque parts and the client's own body.
For everybody else nothing is stored unless the client wants it, and reasoning comes back encrypted, so that it can
travel through the client.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Request, Text
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Target
from dragoman.protocols.openai_responses.marks import Marks
from dragoman.protocols.openai_responses.wire import ORIGIN
from dragoman.protocols.openai_responses.write_input import InputWriter
from dragoman.protocols.openai_responses.write_params import mend_settings, own_settings, settings
from dragoman.protocols.openai_responses.write_tools import (
    note_servers,
    sum_of_uses,
    write_choice,
    write_tools,
)

# "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
_JSON_WORDS = "Answer with one JSON object."


def write_request(request: Request, target: Target, ledger: Ledger) -> JSONObject:
    """The body.

    Raises RemoteProtocolError for audio: an answer without it would be another answer.
    """
    own = request.protocol == ORIGIN
    mends = own and target.relay == "mend"
    marks = Marks((own and not mends) or target.cache_marks == "breakpoint", ledger)
    out: JSONObject = {"model": request.model}
    messages = request.messages
    if messages and _is_instructions(messages, own):
        text = messages[0].parts[0]
        assert isinstance(text, Text)
        out["instructions"] = text.text
        messages = messages[1:]
    elif own and request.raw.get("instructions") == "":
        out["instructions"] = ""
    items = InputWriter(request, target, marks, ledger).items(messages)
    if not own:
        marks.finish()
        _mention_json(request, items, ledger)
        out["input"] = items
    elif type(request.raw.get("input")) is str and len(items) == 1:
        out["input"] = request.raw["input"]
    elif request.raw.get("input") is not None:
        out["input"] = items
    _write_tools(request, target, out, ledger)
    if request.parallel_tool_calls is not None:
        out["parallel_tool_calls"] = request.parallel_tool_calls
    if request.stream:
        out["stream"] = True
    if own:
        own_settings(request, out, ledger)
        if mends:
            marks.finish()
            mend_settings(request, target, out, ledger)
    else:
        settings(request, target, out, ledger)
    return out


def _write_tools(request: Request, target: Target, out: JSONObject, ledger: Ledger) -> None:
    own = request.protocol == ORIGIN
    # Those that an item of the input declares are printed there.
    tools = [tool for tool in request.tools if not (own and tool.path.startswith("/input/"))]
    written = write_tools(tools, request, target, ledger) if tools else []
    if written:
        out["tools"] = written
    uses = None if own else sum_of_uses(tools, target, ledger)
    if "mcp_servers" in request.params:
        note_servers(request, target, ledger)
    if uses is not None:
        out["max_tool_calls"] = uses
    choice = request.tool_choice
    if choice is None:
        return
    if choice.mode == "required" and not written and not own:
        ledger.dropped(choice.path, "there is no tool that could be called")
        return
    chosen = write_choice(choice, request.tools, request, target, ledger)
    if chosen is not None:
        out["tool_choice"] = chosen


def _is_instructions(messages: tuple[Message, ...], own: bool) -> bool:
    """Whether the first message goes into `instructions`, which holds one plain text.

    Several system texts, or one with a cache mark, stay items: joining them would lose where one ends.
    """
    first = messages[0]
    if own:
        return first.path == "/instructions"
    if first.role != "system" or len(first.parts) != 1 or first.name is not None:
        return False
    part = first.parts[0]
    if type(part) is not Text or part.cache is not None or part.citations:
        return False
    return len(messages) < 2 or messages[1].role not in ("system", "developer")


def _mention_json(request: Request, items: list[JSON], ledger: Ledger) -> None:
    """See _JSON_WORDS: the word is put at the end, where it disturbs no cached prefix."""
    form = request.response_format
    if form is None or form.schema is not None or any(_mentions_json(item) for item in items):
        return
    content = [{"type": "input_text", "text": _JSON_WORDS}]
    items.append({"type": "message", "role": "system", "content": content})
    ledger.add(
        LossCode.REPAIRED,
        form.path or "/response_format",
        "the server wants the word JSON in the input: an instruction was added",
    )


def _mentions_json(item: JSONObject) -> bool:
    content = item.get("content")
    return type(content) is list and any("json" in (part.get("text") or "").lower() for part in content)
