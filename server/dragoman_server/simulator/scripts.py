"""The scripts: what each simulated model does, one generator for each.

A script yields the content of a response and, unless it is a plain end, why it stopped. `reply` adds what all responses
have in common (start, usage, pace, end). Documentation and model lists are made from SIMULATED_MODELS at the end.
"""

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dragoman import ErrorKind, StopReason, WireError
from dragoman.document import CustomTool, FunctionTool, Media
from dragoman.events import BlockKind, BlockStarted, Failed, Stopped, TextDelta
from dragoman_server.simulator.example import example, example_text
from dragoman_server.simulator.reasoning import check_returned_reasoning, make_reasoning, wants_reasoning
from dragoman_server.simulator.request import SimulatedRequest, describe
from dragoman_server.simulator.steps import ConnectionCut, Delay, Step, call, say, split_words, think

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
_SENTENCE = 12
_PARAGRAPH = 96

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

Script = Callable[[SimulatedRequest], Iterator[Step]]


def echo(request: SimulatedRequest) -> Iterator[Step]:
    yield from say(0, split_words(request.user_text or "There is no user text to repeat."))


def tools(request: SimulatedRequest) -> Iterator[Step]:
    if request.results:
        yield from say(0, split_words(request.quote_results()))
        return
    wanted = request.requested_calls() or [(tool, _input_for(tool)) for tool in request.tools[:2]]
    if not wanted:
        yield from say(0, split_words("There is no tool to call: the request offers none, or forbids them."))
        return
    yield from _calls(request, wanted if request.parallel else wanted[:1])


def custom(request: SimulatedRequest) -> Iterator[Step]:
    if request.results:
        yield from say(0, split_words(request.quote_results()))
        return
    tool = next((tool for tool in request.tools if _takes_text(tool)), None)
    if tool is None:
        yield from say(0, split_words("There is no free-text tool to call."))
        return
    wanted = [(tool, _input_for(tool))]
    yield from _calls(request, request.requested_calls()[:1] or wanted)


def reason(request: SimulatedRequest) -> Iterator[Step]:
    calls = request.tools[:1] if not request.results else []
    if wants_reasoning(request):
        item_id = f"rs_{request.token}"
        parts, form, signature = make_reasoning(request, item_id)
        yield from think(0, parts, form, signature, item_id)
    if calls:
        yield from _calls(request, request.requested_calls()[:1] or [(calls[0], _input_for(calls[0]))])
    else:
        yield from say(1, split_words(request.quote_results() or f"You said: {request.user_text}"))


def long(request: SimulatedRequest) -> Iterator[Step]:
    yield from say(0, prose(_LONG_WORDS))


def short(request: SimulatedRequest) -> Iterator[Step]:
    yield from say(0, prose(_SHORT_WORDS))


def silent(request: SimulatedRequest) -> Iterator[Step]:
    yield Delay(request.setting)
    yield from short(request)


def pause(request: SimulatedRequest) -> Iterator[Step]:
    yield from _in_the_middle([Delay(request.setting)])


def refusal(request: SimulatedRequest) -> Iterator[Step]:
    if request.document.protocol == "anthropic_messages":
        # Messages has no block for it: the stop reason turns the text into a refusal.
        yield from say(0, split_words(REFUSAL_TEXT))
        yield Stopped(StopReason.CONTENT_FILTER, explanation=REFUSAL_TEXT)
    else:
        yield from say(0, split_words(REFUSAL_TEXT), BlockKind.REFUSAL)


def filtered(request: SimulatedRequest) -> Iterator[Step]:
    yield from short(request)
    yield Stopped(StopReason.CONTENT_FILTER)


def length(request: SimulatedRequest) -> Iterator[Step]:
    yield from say(0, prose(min(request.max_tokens or _LENGTH_WORDS, _LENGTH_WORDS)))
    yield Stopped(StopReason.MAX_TOKENS)


def length_tools(request: SimulatedRequest) -> Iterator[Step]:
    if not request.tools:
        yield from length(request)
        return
    tool = request.tools[0]
    text = _input_for(tool)
    yield from call(0, request.tool_head(tool, 0), text[: max(1, len(text) // 2)], complete=False)
    yield Stopped(StopReason.MAX_TOKENS)


def structured(request: SimulatedRequest) -> Iterator[Step]:
    wanted = request.document.response_format
    value = (
        {"answer": request.user_text} if wanted is None or wanted.schema is None else example(wanted.schema)
    )
    yield from say(0, split_words(json.dumps(value, ensure_ascii=False)))


def images(request: SimulatedRequest) -> Iterator[Step]:
    found = [describe(part) for part in request.parts if isinstance(part, Media)]
    lines = [f"{number}. {line}" for number, line in enumerate(found, 1)]
    yield from say(
        0, split_words("\n".join(lines) or "There is no image, file or sound in the conversation.")
    )


def stop(request: SimulatedRequest) -> Iterator[Step]:
    text = request.user_text
    value = request.document.params.get("stop") or []
    sequences = (
        [value] if isinstance(value, str) else [each for each in value if isinstance(each, str) and each]
    )
    places = [(text.find(each), each) for each in sequences if each in text]
    if not places:
        yield from echo(request)
        return
    end, sequence = min(places, key=lambda place: place[0])
    yield from say(0, split_words(text[:end]))
    yield Stopped(StopReason.STOP_SEQUENCE, sequence=sequence)


def count(request: SimulatedRequest) -> Iterator[Step]:
    numbers = re.findall(r"[0-9]{1,9}", request.user_text)
    target = min(int(numbers[-1]), _MAX_COUNT) if numbers else _COUNT_TO
    last = target if request.max_tokens is None else min(target, request.max_tokens)
    yield from say(0, (f" {number}" if number > 1 else "1" for number in range(1, last + 1)))
    if last < target:
        yield Stopped(StopReason.MAX_TOKENS)


def empty(request: SimulatedRequest) -> Iterator[Step]:
    yield from ()


def error_mid(request: SimulatedRequest) -> Iterator[Step]:
    error = WireError(ErrorKind.OVERLOADED, "the simulated model is overloaded and failed in the middle")
    yield from _in_the_middle([Failed(error)])


def cut(request: SimulatedRequest) -> Iterator[Step]:
    yield from _in_the_middle([ConnectionCut.MID_FRAME])


def cut_end(request: SimulatedRequest) -> Iterator[Step]:
    yield from _in_the_middle([ConnectionCut.NO_END])


def prose(count: int) -> Iterator[str]:
    """Yield `count` words, with the blanks and periods that join them to sentences and paragraphs."""
    for number in range(count):
        # Quadratic steps give an order of the words that looks random and takes no memory.
        word = _PROSE_WORDS[(number * number + 3 * number) // 2 % len(_PROSE_WORDS)]
        if number % _SENTENCE == 0:
            word = word.capitalize()
        if number % _SENTENCE == _SENTENCE - 1 or number == count - 1:
            word += "."
        if number:
            word = ("\n\n" if number % _PARAGRAPH == 0 else " ") + word
        yield word


def _in_the_middle(steps: list[Step]) -> Iterator[Step]:
    """Yield some text with `steps` between its two halves."""
    words = list(prose(_SHORT_WORDS))
    middle = len(words) // 2
    yield BlockStarted(0, BlockKind.TEXT)
    yield from (TextDelta(0, word) for word in words[:middle])
    yield from steps
    rest = list(say(0, words[middle:]))
    yield from rest[1:]


def _calls(request: SimulatedRequest, wanted: list[tuple[FunctionTool | CustomTool, str]]) -> Iterator[Step]:
    # Block 0 may be reasoning.
    for number, (tool, text) in enumerate(wanted):
        yield from call(number + 1, request.tool_head(tool, number), text)
    yield Stopped(StopReason.TOOL_USE)


def _takes_text(tool: FunctionTool | CustomTool) -> bool:
    """True for a custom tool, or a function in its place: its only parameter is the string `input`."""
    if isinstance(tool, CustomTool):
        return True
    properties = tool.parameters.get("properties") if isinstance(tool.parameters, dict) else None
    if not isinstance(properties, dict) or list(properties) != ["input"]:
        return False
    return isinstance(properties["input"], dict) and properties["input"].get("type") == "string"


def _input_for(tool: FunctionTool | CustomTool) -> str:
    if isinstance(tool, CustomTool):
        return CUSTOM_INPUT
    if _takes_text(tool):
        return json.dumps({"input": CUSTOM_INPUT}, ensure_ascii=False)
    return example_text(tool.parameters)


class Setting(enum.Enum):
    """The meaning of a number after `@` in the model's name; the value is the text in the documentation."""

    PACE = "events a second"
    SILENCE = "seconds of silence"
    RETRY_AFTER = "seconds in retry-after"


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """One simulated model.

    setting: the meaning of a number after `@`; None if none is accepted.
    default: the number if the name has none; a pace of 0 has no delays.
    refuse: returns the error to send instead of the script's content, or None.
    """

    name: str
    description: str
    script: Script
    setting: Setting | None = Setting.PACE
    default: float = 0
    refuse: Callable[[SimulatedRequest], WireError | None] = lambda request: None


def _error(name: str, kind: ErrorKind, status: int, message: str) -> SimulatedModel:
    error = WireError(kind, message, status=status)
    setting = Setting.RETRY_AFTER if kind is ErrorKind.RATE_LIMIT else None
    description = f"Responds with HTTP {status}: {message}."
    return SimulatedModel(
        name, description, empty, setting, 0 if setting is None else 1, lambda request: error
    )


_MODELS = (
    SimulatedModel("echo", "Repeats the user's last text, a word at a time.", echo),
    SimulatedModel(
        "tools",
        "Calls the first two tools (one, if there is one or parallel calls are off), with arguments made from"
        " their schemas; user lines `call NAME {...}` set exactly what to call. Then quotes the results.",
        tools,
    ),
    SimulatedModel(
        "custom",
        "Calls the first custom tool, or the first function whose only parameter is `input`, with several lines"
        " of quotes, backslashes and Unicode. Then quotes the result.",
        custom,
    ),
    SimulatedModel(
        "reasoning",
        "Reasons, with the signature or encryption of the protocol, then writes text or calls a tool. If its reasoning"
        " is not sent back unchanged with the tool's result, the response is a 400 with the reason.",
        reason,
        refuse=check_returned_reasoning,
    ),
    SimulatedModel("long", f"Writes about {_LONG_WORDS} words.", long),
    SimulatedModel("slow", f"Writes {_SHORT_WORDS} words, four a second.", short, default=4),
    SimulatedModel("silent", "Sends nothing for 60 seconds, then responds.", silent, Setting.SILENCE, 60),
    SimulatedModel(
        "pause", "Goes silent for 60 seconds in the middle of its response.", pause, Setting.SILENCE, 60
    ),
    SimulatedModel("refusal", "Refuses.", refusal),
    SimulatedModel("filter", "Is stopped by a content filter after some words.", filtered),
    SimulatedModel("length", f"Is cut off by the token limit, or after {_LENGTH_WORDS} words.", length),
    SimulatedModel(
        "length-tools", "Is cut off by the token limit inside the arguments of a tool call.", length_tools
    ),
    SimulatedModel("json", "Returns JSON that matches the requested schema.", structured),
    SimulatedModel(
        "images",
        "Names each image, file and sound it got, in tool results too: type, length, hash of the bytes.",
        images,
    ),
    SimulatedModel("stop", "Repeats the user's last text, up to the first stop sequence in it.", stop),
    SimulatedModel(
        "count",
        f"Counts to {_COUNT_TO}, or to the last number in the user's text; one number is one token, and the"
        " token limit holds.",
        count,
    ),
    SimulatedModel("empty", "Responds with no content.", empty, None),
    _error("error-400", ErrorKind.INVALID_REQUEST, 400, "the simulator treats this request as invalid"),
    _error(
        "error-context", ErrorKind.CONTEXT_LENGTH, 400, "prompt is too long: 250000 tokens > 200000 maximum"
    ),
    _error("error-401", ErrorKind.AUTHENTICATION, 401, "the simulator does not accept this key"),
    _error("error-403", ErrorKind.PERMISSION, 403, "this key may not use the simulator"),
    _error("error-404", ErrorKind.NOT_FOUND, 404, "the simulator has nothing with this name"),
    _error("error-429", ErrorKind.RATE_LIMIT, 429, "the simulator has received too many requests"),
    _error("error-500", ErrorKind.SERVER, 500, "the simulator is broken"),
    _error("error-503", ErrorKind.OVERLOADED, 503, "the simulator is not available"),
    _error("error-529", ErrorKind.OVERLOADED, 529, "the simulator is overloaded"),
    SimulatedModel(
        "error-mid",
        "Fails with an error in the stream after some words; not streamed, with an HTTP error.",
        error_mid,
    ),
    SimulatedModel("cut", "Breaks the connection inside a frame, after some words.", cut),
    SimulatedModel(
        "cut-end", "Ends the body properly after some words, but without the end of the response.", cut_end
    ),
)

SIMULATED_MODELS: Mapping[str, SimulatedModel] = {model.name: model for model in _MODELS}
MODELS: Mapping[str, str] = {model.name: model.description for model in _MODELS}
