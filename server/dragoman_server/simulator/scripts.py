"""The scripts: what each simulated model does, one generator a model.

Strategy: a script yields the content of an answer and, when it is not a plain end, why it stopped. What all
answers have in common (start, usage, pace, end) is added by `model`. `TABLE` at the end is the list of models;
documentation and model lists are made from it.
"""

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dragoman import Fault, FaultKind, StopReason
from dragoman._ir.request import CustomTool, FunctionTool, Media
from dragoman.events import BlockKind, BlockStarted, Failed, Stopped, TextDelta
from dragoman_server.simulator.example import example, example_text
from dragoman_server.simulator.prose import prose
from dragoman_server.simulator.reasoning import not_carried, reasoning, reasons
from dragoman_server.simulator.request import Asked, describe
from dragoman_server.simulator.steps import Cut, Step, Wait, call, say, think, words_of

_LONG_WORDS = 2000
_SHORT_WORDS = 20
# Where `length` stops when the client's limit is larger, or missing.
_LENGTH_WORDS = 50
_COUNT_TO = 100
_COUNT_MOST = 10_000

REFUSAL_TEXT = "I cannot help with that. The simulator refuses everything that is asked of this model."

# All that makes trouble on the way from a model's JSON to a file: quotes, backslashes, tabs, other scripts.
CUSTOM_INPUT = (
    'say "hello" to it\'s world\n'
    "path\\to\\file and a regex \\d+\\n\n"
    "\ttabbed, then empty:\n"
    "\n"
    "naïve café — 通訳 ترجمان 🐉 e\u0301\n"
    '{"json": "inside \\"quotes\\""}\n'
)

Script = Callable[[Asked], Iterator[Step]]


def echo(asked: Asked) -> Iterator[Step]:
    yield from say(0, words_of(asked.user_text or "There is no text of the user to say back."))


def tools(asked: Asked) -> Iterator[Step]:
    if asked.results:
        yield from say(0, words_of(asked.quoted()))
        return
    wanted = asked.demanded() or [(tool, _input_for(tool)) for tool in asked.tools[:2]]
    if not wanted:
        yield from say(0, words_of("There is no tool to call: the request offers none, or forbids them."))
        return
    yield from _calls(asked, wanted if asked.parallel else wanted[:1])


def custom(asked: Asked) -> Iterator[Step]:
    if asked.results:
        yield from say(0, words_of(asked.quoted()))
        return
    tool = next((tool for tool in asked.tools if _takes_text(tool)), None)
    if tool is None:
        yield from say(0, words_of("There is no tool with free text to call."))
        return
    wanted = [(tool, _input_for(tool))]
    yield from _calls(asked, asked.demanded()[:1] or wanted)


def reason(asked: Asked) -> Iterator[Step]:
    calls = asked.tools[:1] if not asked.results else []
    if reasons(asked):
        item_id = f"rs_{asked.token}"
        parts, form, seal = reasoning(asked, item_id)
        yield from think(0, parts, form, seal, item_id)
    if calls:
        yield from _calls(asked, asked.demanded()[:1] or [(calls[0], _input_for(calls[0]))])
    else:
        yield from say(1, words_of(asked.quoted() or f"You said: {asked.user_text}"))


def long(asked: Asked) -> Iterator[Step]:
    yield from say(0, prose(_LONG_WORDS))


def short(asked: Asked) -> Iterator[Step]:
    yield from say(0, prose(_SHORT_WORDS))


def silent(asked: Asked) -> Iterator[Step]:
    yield Wait(asked.setting)
    yield from short(asked)


def pause(asked: Asked) -> Iterator[Step]:
    yield from _amid([Wait(asked.setting)])


def refusal(asked: Asked) -> Iterator[Step]:
    if asked.request.protocol == "anthropic_messages":
        # Messages has no block for it: the stop reason makes a refusal of what was said.
        yield from say(0, words_of(REFUSAL_TEXT))
        yield Stopped(StopReason.CONTENT_FILTER, explanation=REFUSAL_TEXT)
    else:
        yield from say(0, words_of(REFUSAL_TEXT), BlockKind.REFUSAL)


def filtered(asked: Asked) -> Iterator[Step]:
    yield from short(asked)
    yield Stopped(StopReason.CONTENT_FILTER)


def length(asked: Asked) -> Iterator[Step]:
    yield from say(0, prose(min(asked.max_tokens or _LENGTH_WORDS, _LENGTH_WORDS)))
    yield Stopped(StopReason.MAX_TOKENS)


def length_tools(asked: Asked) -> Iterator[Step]:
    if not asked.tools:
        yield from length(asked)
        return
    tool = asked.tools[0]
    text = _input_for(tool)
    yield from call(0, asked.head(tool, 0), text[: max(1, len(text) // 2)], complete=False)
    yield Stopped(StopReason.MAX_TOKENS)


def structured(asked: Asked) -> Iterator[Step]:
    wanted = asked.request.response_format
    value = {"answer": asked.user_text} if wanted is None or wanted.schema is None else example(wanted.schema)
    yield from say(0, words_of(json.dumps(value, ensure_ascii=False)))


def images(asked: Asked) -> Iterator[Step]:
    found = [describe(part) for part in asked.parts if isinstance(part, Media)]
    lines = [f"{number}. {line}" for number, line in enumerate(found, 1)]
    yield from say(0, words_of("\n".join(lines) or "There is no image, file or sound in the conversation."))


def stop(asked: Asked) -> Iterator[Step]:
    text = asked.user_text
    given = asked.request.params.get("stop") or []
    sequences = (
        [given] if isinstance(given, str) else [each for each in given if isinstance(each, str) and each]
    )
    places = [(text.find(each), each) for each in sequences if each in text]
    if not places:
        yield from echo(asked)
        return
    end, sequence = min(places, key=lambda place: place[0])
    yield from say(0, words_of(text[:end]))
    yield Stopped(StopReason.STOP_SEQUENCE, sequence=sequence)


def count(asked: Asked) -> Iterator[Step]:
    numbers = re.findall(r"[0-9]{1,9}", asked.user_text)
    goal = min(int(numbers[-1]), _COUNT_MOST) if numbers else _COUNT_TO
    last = goal if asked.max_tokens is None else min(goal, asked.max_tokens)
    yield from say(0, (f" {number}" if number > 1 else "1" for number in range(1, last + 1)))
    if last < goal:
        yield Stopped(StopReason.MAX_TOKENS)


def empty(asked: Asked) -> Iterator[Step]:
    yield from ()


def error_mid(asked: Asked) -> Iterator[Step]:
    fault = Fault(FaultKind.OVERLOADED, "the simulated model is overloaded and gave up in the middle")
    yield from _amid([Failed(fault)])


def cut(asked: Asked) -> Iterator[Step]:
    yield from _amid([Cut.MID_FRAME])


def cut_end(asked: Asked) -> Iterator[Step]:
    yield from _amid([Cut.NO_END])


def _amid(steps: list[Step]) -> Iterator[Step]:
    """Some text with `steps` between its two halves."""
    words = list(prose(_SHORT_WORDS))
    middle = len(words) // 2
    yield BlockStarted(0, BlockKind.TEXT)
    yield from (TextDelta(0, word) for word in words[:middle])
    yield from steps
    rest = list(say(0, words[middle:]))
    yield from rest[1:]


def _calls(asked: Asked, wanted: list[tuple[FunctionTool | CustomTool, str]]) -> Iterator[Step]:
    # Block 0 may hold reasoning.
    for number, (tool, text) in enumerate(wanted):
        yield from call(number + 1, asked.head(tool, number), text)
    yield Stopped(StopReason.TOOL_USE)


def _takes_text(tool: FunctionTool | CustomTool) -> bool:
    """A custom tool, or the function that stands in for one where the protocol has none: one string, `input`."""
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
    """What a number behind `@` in the model's name sets."""

    PACE = "events a second"
    SILENCE = "seconds of silence"
    RETRY_AFTER = "seconds in retry-after"


@dataclass(frozen=True, slots=True)
class Model:
    """One simulated model.

    setting: what a number behind `@` means, None where it means nothing.
    default: the number when the name has none; a pace of 0 is as fast as it goes.
    refuse: the error that is answered instead of the script's content, None for none.
    """

    name: str
    description: str
    script: Script
    setting: Setting | None = Setting.PACE
    default: float = 0
    refuse: Callable[[Asked], Fault | None] = lambda asked: None


def _error(name: str, kind: FaultKind, status: int, message: str) -> Model:
    fault = Fault(kind, message, status=status)
    setting = Setting.RETRY_AFTER if kind is FaultKind.RATE_LIMIT else None
    shown = f"Answers with HTTP {status}: {message}."
    return Model(name, shown, empty, setting, 0 if setting is None else 1, lambda asked: fault)


_MODELS = (
    Model("echo", "Says back the last text of the user, a word at a time.", echo),
    Model(
        "tools",
        "Calls the first two tools (one, if there is one or parallel calls are off), with arguments made from"
        " their schemas; lines `call NAME {...}` of the user say exactly what to call. Quotes the results then.",
        tools,
    ),
    Model(
        "custom",
        "Calls the first custom tool, or the first function whose only parameter is `input`, with several lines"
        " of quotes, backslashes and Unicode. Quotes the result then.",
        custom,
    ),
    Model(
        "reasoning",
        "Thinks, in the protocol's own sealed form, then answers or calls a tool. If its reasoning does not come"
        " back unchanged with the tool's result, the answer is an error 400 that says so.",
        reason,
        refuse=not_carried,
    ),
    Model("long", f"Says about {_LONG_WORDS} words.", long),
    Model("slow", f"Says {_SHORT_WORDS} words, four a second.", short, default=4),
    Model("silent", "Sends nothing for 60 seconds, then answers.", silent, Setting.SILENCE, 60),
    Model("pause", "Goes silent for 60 seconds in the middle of its answer.", pause, Setting.SILENCE, 60),
    Model("refusal", "Refuses.", refusal),
    Model("filter", "Is stopped by a content filter after some words.", filtered),
    Model("length", f"Is cut off by the token limit, or after {_LENGTH_WORDS} words.", length),
    Model("length-tools", "Is cut off by the token limit inside the arguments of a tool call.", length_tools),
    Model("json", "Gives JSON that fits the schema asked for.", structured),
    Model(
        "images",
        "Names each image, file and sound it got, in tool results too: type, length, hash of the bytes.",
        images,
    ),
    Model("stop", "Says back the last text of the user, up to the first stop sequence in it.", stop),
    Model(
        "count",
        f"Counts to {_COUNT_TO}, or to the last number in the user's text; one number is one token, and the"
        " token limit holds.",
        count,
    ),
    Model("empty", "Answers with no content.", empty, None),
    _error("error-400", FaultKind.INVALID_REQUEST, 400, "the simulator finds this request invalid"),
    _error(
        "error-context", FaultKind.CONTEXT_LENGTH, 400, "prompt is too long: 250000 tokens > 200000 maximum"
    ),
    _error("error-401", FaultKind.AUTHENTICATION, 401, "the simulator does not know this key"),
    _error("error-403", FaultKind.PERMISSION, 403, "the simulator does not let this key in"),
    _error("error-404", FaultKind.NOT_FOUND, 404, "the simulator has no such thing"),
    _error("error-429", FaultKind.RATE_LIMIT, 429, "the simulator has had too many requests"),
    _error("error-500", FaultKind.SERVER, 500, "the simulator is broken"),
    _error("error-503", FaultKind.OVERLOADED, 503, "the simulator is not available"),
    _error("error-529", FaultKind.OVERLOADED, 529, "the simulator is overloaded"),
    Model(
        "error-mid",
        "Fails with an error in the stream after some words; not streamed, with an HTTP error.",
        error_mid,
    ),
    Model("cut", "Breaks the connection inside a frame, after some words.", cut),
    Model("cut-end", "Ends the body properly after some words, but without the end of the answer.", cut_end),
)

TABLE: Mapping[str, Model] = {model.name: model for model in _MODELS}
MODELS: Mapping[str, str] = {model.name: model.description for model in _MODELS}
