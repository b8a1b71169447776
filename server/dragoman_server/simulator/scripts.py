"""The simulated models, each with the script of what it does.

A script returns the content of a response and, unless it is a plain end, why it stopped. `reply` adds what all
responses have in common (start, usage, pace, end). Documentation and model lists are made from MODELS.
"""

import enum
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NoReturn, TypeAlias

import msgspec

from dragoman import ErrorKind, RequestRefused, StopReason, WireError
from dragoman.document import CustomTool, FunctionTool, Media
from dragoman.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    ReasoningDelta,
    SignatureDelta,
    Stopped,
    TextDelta,
    ToolHead,
    ToolKind,
)
from dragoman.jsontext import JSON
from dragoman_server.settings.problems import did_you_mean, printable
from dragoman_server.simulator.example import example, example_text
from dragoman_server.simulator.reasoning import check_returned_reasoning, make_reasoning, wants_reasoning
from dragoman_server.simulator.request import ClientTool, SimulatedRequest, describe

_LONG_WORDS = 2000
_SHORT_WORDS = 20
# Where `length` stops if the client's limit is larger, or missing.
_LENGTH_WORDS = 50
_COUNT_TO = 100
_MAX_COUNT = 10_000

_PROSE = (
    "a dragoman stood between two courts and spoke for each in the tongue of the other while scribes wrote down"
    " every word that was said so that nothing would be lost on the long road from city to palace where patient"
    " clerks compared both letters line by line"
)
_PROSE_WORDS = _PROSE.split()
_SENTENCE_WORDS = 12
_PARAGRAPH_SENTENCES = 8

# Clients of the gateway may put the name of the upstream before the model's.
_PREFIX = "sim/"
_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"

REFUSAL_TEXT = "I cannot help with that. The simulator refuses everything that is asked of this model."

# Everything that causes errors on the way from a model's JSON to a file: quotes, backslashes, tabs, other scripts.
CUSTOM_INPUT = (
    'say "hello" to it\'s world\n'
    "path\\to\\file and a regex \\d+\\n\n"
    "\ttabbed, then empty:\n"
    "\n"
    "naïve café — 通訳 ترجمان 🐉 e\u0301\n"
    '{"json": "inside \\"quotes\\""}\n'
)

# Arguments have few blanks, so they are cut at a fixed length, small enough to cut within words and escapes.
_ARGUMENTS_LENGTH = 7

# The tools by which agents run a command, and the parameter for it, as Claude Code 2.1, Codex 0.169, opencode 1.18 and
# qwen-code 0.24 send them.
_SHELL_TOOLS = {
    "Bash": "command",
    "bash": "command",
    "exec_command": "cmd",
    "run_shell_command": "command",
}
# Agents put their own texts around the user's, and may quote it.
_COMMAND = r"\brun `([^`\n]{1,1000})`"

# A word with the white space before it, or a part of a long one; joined, they are the text.
_WORD = r"\s{0,1000}+\S{1,1000}|\s{1,1000}"


class Delay(msgspec.Struct, frozen=True):
    """Nothing is sent for `seconds`."""

    seconds: float


class ConnectionCut(enum.Enum):
    """The connection ends too early. A response that is not streamed is cut in the middle of its body in both cases."""

    MID_FRAME = "mid_frame"  # broken, inside the frame of the next event
    NO_END = "no_end"  # closed properly between two frames


Step: TypeAlias = Event | Delay | ConnectionCut
Script: TypeAlias = Callable[[SimulatedRequest], Iterable[Step]]


class ModelSetting(msgspec.Struct, frozen=True):
    """The meaning of a number after `@` in the model's name, as the documentation has it, and the largest number."""

    meaning: str
    maximum: int


PACE = ModelSetting("events a second", 1_000_000)  # its inverse is a useful delay
SILENCE = ModelSetting("seconds of silence", 86_400)
RETRY_AFTER = ModelSetting("seconds in retry-after", 86_400)


class SimulatedModel(msgspec.Struct, frozen=True):
    """One simulated model.

    Attributes:
        script: Returns the steps of a response, or raises RequestRefused.
        setting: The meaning of a number after `@`; None if none is accepted.
        default: The number if the name has none; a pace of 0 has no delays.
    """

    description: str
    script: Script
    setting: ModelSetting | None
    default: float


MODELS: dict[str, SimulatedModel] = {}


def _model(
    name: str, description: str, setting: ModelSetting | None = PACE, default: float = 0
) -> Callable[[Script], Script]:
    """Add a model with the decorated script to MODELS."""

    def add(script: Script) -> Script:
        MODELS[name] = SimulatedModel(description, script, setting, default)
        return script

    return add


def _say(text: str, kind: BlockKind = BlockKind.TEXT, block: int = 0) -> Iterator[Step]:
    """Yield a block of text or refusal, with a delta for each word; nothing for an empty text."""
    if text:
        yield BlockStarted(block, kind)
        yield from (TextDelta(block, word.group()) for word in re.finditer(_WORD, text))
        yield BlockEnded(block)


def _think(request: SimulatedRequest) -> Iterator[Step]:
    item_id = f"rs_{request.token}"
    parts, form, signature = make_reasoning(request, item_id)
    yield BlockStarted(0, BlockKind.REASONING, item_id=item_id)
    for number, part in enumerate(parts):
        yield from (ReasoningDelta(0, word, number, form) for word in re.findall(_WORD, part))
    yield SignatureDelta(0, signature)
    yield BlockEnded(0)


def _call(
    request: SimulatedRequest, tool: ClientTool, text: str, number: int = 0, *, complete: bool = True
) -> Iterator[Step]:
    """Yield tool call `number`. text: JSON for a function, any text for a custom tool."""
    kind = ToolKind.CUSTOM if isinstance(tool, CustomTool) else ToolKind.FUNCTION
    # The prefixes of call ids that vendors' clients expect.
    prefix = "toolu_" if request.document.protocol == "anthropic_messages" else "call_"
    head = ToolHead(f"{prefix}{request.token[:20]}{number}", tool.name, kind, tool.namespace)
    block = number + 1  # block 0 may be reasoning
    yield BlockStarted(block, BlockKind.TOOL_CALL, tool=head)
    for start in range(0, len(text), _ARGUMENTS_LENGTH):
        yield ArgumentsDelta(block, text[start : start + _ARGUMENTS_LENGTH])
    yield BlockEnded(block, complete)


def _prose(count: int) -> str:
    """Return `count` words, in sentences and paragraphs."""
    # Quadratic steps give an order of the words that looks random and takes no memory.
    words = [_PROSE_WORDS[(n * n + 3 * n) // 2 % len(_PROSE_WORDS)] for n in range(count)]
    sentences = [f"{' '.join(part).capitalize()}." for part in _parts(words, _SENTENCE_WORDS)]
    return "\n\n".join(" ".join(part) for part in _parts(sentences, _PARAGRAPH_SENTENCES))


def _parts(texts: list[str], size: int) -> list[list[str]]:
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def _in_the_middle(step: Step) -> list[Step]:
    """Return some text with `step` between its two halves."""
    steps = list(_say(_prose(_SHORT_WORDS)))
    middle = len(steps) // 2
    return [*steps[:middle], step, *steps[middle:]]


def _takes_text(tool: ClientTool) -> bool:
    """True for a custom tool, or a function in its place: its only parameter is the string `input`."""
    if isinstance(tool, CustomTool):
        return True
    match tool.parameters:
        case {"properties": {"input": {"type": "string"}, **others}}:
            return not others
    return False


def _input_for(tool: ClientTool) -> str:
    if isinstance(tool, CustomTool):
        return CUSTOM_INPUT
    if _takes_text(tool):
        return json.dumps({"input": CUSTOM_INPUT}, ensure_ascii=False)
    return example_text(tool.parameters)


def _calls(request: SimulatedRequest, tools: list[ClientTool], most: int | None = 1) -> Iterator[Step]:
    """Yield the calls that the user requested, else calls of `tools` with inputs made for them."""
    calls = request.requested_calls() or [(tool, _input_for(tool)) for tool in tools]
    for number, (tool, text) in enumerate(calls[:most]):
        yield from _call(request, tool, text, number)
    yield Stopped(StopReason.TOOL_USE)


@_model("echo", "Repeats the user's last paragraph, a word at a time.")
def _echo(request: SimulatedRequest) -> Iterable[Step]:
    return _say(request.last_paragraph or "There is no user text to repeat.")


@_model(
    "tools",
    "Calls the first two tools (one, if there is one or parallel calls are off), with arguments made from"
    " their schemas; user lines `call NAME {...}` set exactly what to call. Then quotes the results.",
)
def _tools(request: SimulatedRequest) -> Iterable[Step]:
    if request.results:
        return _say(request.quote_results())
    if not (request.tools or request.requested_calls()):
        return _say("There is no tool to call: the request offers none, or forbids them.")
    return _calls(request, request.tools[:2], 1 if request.document.parallel_tool_calls is False else None)


@_model(
    "custom",
    "Calls the first custom tool, or the first function whose only parameter is `input`, with several lines"
    " of quotes, backslashes and Unicode. Then quotes the result.",
)
def _custom(request: SimulatedRequest) -> Iterable[Step]:
    if request.results:
        return _say(request.quote_results())
    tools = [tool for tool in request.tools if _takes_text(tool)]
    return _calls(request, tools) if tools else _say("There is no free-text tool to call.")


@_model(
    "shell",
    "Calls a coding agent's shell tool with a command of the user's text, as in: run `echo hello > hello.txt`. Then"
    " quotes the result.",
)
def _shell(request: SimulatedRequest) -> Iterable[Step]:
    if request.results:
        return _say(request.quote_results())
    tool = next((tool for tool in request.tools if tool.name in _SHELL_TOOLS), None)
    commands = re.findall(_COMMAND, request.user_text)
    if not isinstance(tool, FunctionTool) or not commands:
        return _say("There is no command to run, or no shell tool that is known to the simulator.")
    required = _required_only(tool.parameters)
    arguments = {**json.loads(example_text(required)), _SHELL_TOOLS[tool.name]: commands[-1]}
    return chain(
        _call(request, tool, json.dumps(arguments, ensure_ascii=False)), [Stopped(StopReason.TOOL_USE)]
    )


def _required_only(schema: JSON) -> JSON:
    """Return a tool's schema without the parameters that it does not require."""
    match schema:
        case {"properties": dict(properties), "required": list(required)}:
            return {
                **schema,
                "properties": {name: properties[name] for name in required if name in properties},
            }
    return {}


@_model(
    "reasoning",
    "Reasons, with the signature or encryption of the protocol, then writes text or calls a tool. If its reasoning"
    " is not sent back unchanged with the tool's result, the response is a 400 with the reason.",
)
def _reasoning(request: SimulatedRequest) -> Iterable[Step]:
    reasoning: Iterable[Step] = ()
    if wants_reasoning(request):
        check_returned_reasoning(request)
        reasoning = _think(request)
    if request.tools and not request.results:
        return chain(reasoning, _calls(request, request.tools))
    return chain(reasoning, _say(request.quote_results() or f"You said: {request.user_text}", block=1))


@_model("long", f"Writes about {_LONG_WORDS} words.")
def _long(request: SimulatedRequest) -> Iterable[Step]:
    return _say(_prose(_LONG_WORDS))


@_model("slow", f"Writes {_SHORT_WORDS} words, four a second.", default=4)
def _short(request: SimulatedRequest) -> Iterable[Step]:
    return _say(_prose(_SHORT_WORDS))


@_model("silent", "Sends nothing for 60 seconds, then responds.", SILENCE, 60)
def _silent(request: SimulatedRequest) -> Iterable[Step]:
    return [Delay(request.number), *_short(request)]


@_model("pause", "Goes silent for 60 seconds in the middle of its response.", SILENCE, 60)
def _pause(request: SimulatedRequest) -> Iterable[Step]:
    return _in_the_middle(Delay(request.number))


@_model("refusal", "Refuses.")
def _refusal(request: SimulatedRequest) -> Iterable[Step]:
    if request.document.protocol == "anthropic_messages":
        # Messages has no block for it: the stop reason turns the text into a refusal.
        return [*_say(REFUSAL_TEXT), Stopped(StopReason.CONTENT_FILTER, explanation=REFUSAL_TEXT)]
    return _say(REFUSAL_TEXT, BlockKind.REFUSAL)


@_model("filter", "Is stopped by a content filter after some words.")
def _filter(request: SimulatedRequest) -> Iterable[Step]:
    return [*_short(request), Stopped(StopReason.CONTENT_FILTER)]


@_model("length", f"Is cut off by the token limit, or after {_LENGTH_WORDS} words.")
def _length(request: SimulatedRequest) -> Iterable[Step]:
    words = min(request.max_tokens or _LENGTH_WORDS, _LENGTH_WORDS)
    return [*_say(_prose(words)), Stopped(StopReason.MAX_TOKENS)]


@_model("length-tools", "Is cut off by the token limit inside the arguments of a tool call.")
def _length_tools(request: SimulatedRequest) -> Iterable[Step]:
    if not request.tools:
        return _length(request)
    tool = request.tools[0]
    text = _input_for(tool)
    half = text[: max(1, len(text) // 2)]
    return [*_call(request, tool, half, complete=False), Stopped(StopReason.MAX_TOKENS)]


@_model("json", "Returns JSON that matches the requested schema, by a call if a tool stands for it.")
def _json(request: SimulatedRequest) -> Iterable[Step]:
    wanted = request.document.response_format
    if wanted is None and request.tools and not request.results:  # as SDKs ask models that they do not know
        return _calls(request, request.tools)
    schema = None if wanted is None else wanted.schema
    value = {"answer": request.user_text} if schema is None else example(schema)
    return _say(json.dumps(value, ensure_ascii=False))


@_model(
    "images",
    "Names each image, file and sound it got, in tool results too: type, length, hash of the bytes.",
)
def _images(request: SimulatedRequest) -> Iterable[Step]:
    found = [describe(part) for part in request.parts if isinstance(part, Media)]
    lines = [f"{number}. {line}" for number, line in enumerate(found, 1)]
    return _say("\n".join(lines) or "There is no image, file or sound in the conversation.")


@_model("stop", "Repeats the user's last text, up to the first stop sequence in it.")
def _stop(request: SimulatedRequest) -> Iterable[Step]:
    text = request.user_text
    places = [(text.find(sequence), sequence) for sequence in request.stop_sequences if sequence in text]
    if not places:
        return _echo(request)
    end, sequence = min(places, key=lambda place: place[0])
    return chain(_say(text[:end]), [Stopped(StopReason.STOP_SEQUENCE, sequence=sequence)])


@_model(
    "count",
    f"Counts to {_COUNT_TO}, or to the last number in the user's text; one number is one token, and the"
    " token limit holds.",
)
def _count(request: SimulatedRequest) -> Iterable[Step]:
    numbers = re.findall(r"[0-9]{1,9}", request.user_text)
    target = min(int(numbers[-1]), _MAX_COUNT) if numbers else _COUNT_TO
    last = target if request.max_tokens is None else min(target, request.max_tokens)
    text = _say(" ".join(map(str, range(1, last + 1))))
    return [*text, Stopped(StopReason.MAX_TOKENS)] if last < target else text


@_model("empty", "Responds with no content.", None)
def _empty(request: SimulatedRequest) -> Iterable[Step]:
    return ()


def _add_error(name: str, status: int, message: str, code: str | None = None) -> None:
    setting, default = (RETRY_AFTER, 1) if status == 429 else (None, 0)

    @_model(name, f"Responds with HTTP {status}: {message}.", setting, default)
    def refuse(request: SimulatedRequest) -> NoReturn:
        raise RequestRefused(message, status=status, code=code)


_add_error("error-400", 400, "the simulator treats this request as invalid")
_add_error(
    "error-context", 400, "prompt is too long: 250000 tokens > 200000 maximum", "context_length_exceeded"
)
_add_error("error-401", 401, "the simulator does not accept this key")
_add_error("error-403", 403, "this key may not use the simulator")
_add_error("error-404", 404, "the simulator has nothing with this name")
_add_error("error-429", 429, "the simulator has received too many requests")
_add_error("error-500", 500, "the simulator is broken")
_add_error("error-503", 503, "the simulator is not available")
_add_error("error-529", 529, "the simulator is overloaded")


@_model("error-mid", "Fails with an error in the stream after some words; not streamed, with an HTTP error.")
def _error_mid(request: SimulatedRequest) -> Iterable[Step]:
    message = "the simulated model is overloaded and failed in the middle"
    return _in_the_middle(Failed(WireError(ErrorKind.OVERLOADED, message)))


@_model("cut", "Breaks the connection inside a frame, after some words.")
def _cut(request: SimulatedRequest) -> Iterable[Step]:
    return _in_the_middle(ConnectionCut.MID_FRAME)


@_model("cut-end", "Ends the body properly after some words, but without the end of the response.")
def _cut_end(request: SimulatedRequest) -> Iterable[Step]:
    return _in_the_middle(ConnectionCut.NO_END)


def model_of(name: str) -> tuple[SimulatedModel, float]:
    """Return the model of a name such as `echo@50`, and its number. Raises RequestRefused."""
    if not name:
        raise RequestRefused("model is required", code="missing_required_parameter", path="/model")
    plain, at, number = name.removeprefix(_PREFIX).partition("@")
    model = MODELS.get(plain)
    if model is None:
        message = f'the simulator has no model "{printable(plain[:100], "?")}"{did_you_mean(plain, MODELS)}'
        raise RequestRefused(message, status=404, code="model_not_found", path="/model")
    if not at:
        return model, model.default
    setting = model.setting
    if setting is None or not re.fullmatch(_NUMBER, number) or float(number) > setting.maximum:
        accepted = f"{setting.meaning}, a number from 0 to {setting.maximum}," if setting else "no number"
        message = f'the model "{plain}" accepts {accepted} after @'
        raise RequestRefused(message, code="invalid_value", path="/model")
    return model, float(number)
