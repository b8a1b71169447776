"""Settings that an upstream does not take."""

from typing import Any

import msgspec
import pytest
from core.passes import pass_context
from core.toy_protocol import toy

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Param, ReasoningConfig, Request
from dragoman._ir.tools import FunctionTool, HostedTool, ToolChoice, ToolRef
from dragoman._transforms.unsupported import add_cache_key, drop_unsupported, fit_tool_settings
from dragoman._wire.exceptions import RequestRefused
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities

MANY = toy("many", choices=True)
ONE = toy("one", choices=False, max_stop_sequences=1)
PATHS: dict[Param, str] = {"stop": "/until", "n": "/count"}


def fitted(
    params: dict[Param, Any],
    *,
    spec: Any = ONE,
    max_fan_out: int = 1,
    reasoning: ReasoningConfig | None = None,
    **capabilities: Any,
) -> tuple[dict[Param, Any], tuple[str, ...], int, list[tuple[LossCode, str]]]:
    ledger = Ledger()
    request = Request("toy", "m", (), params=params, param_paths=PATHS, reasoning=reasoning)
    context = pass_context(
        request, ledger, Capabilities(**capabilities), upstream=spec, max_fan_out=max_fan_out
    )
    out = drop_unsupported(request, context)
    assert (out is request) is (out.params == params)
    return (
        out.params,
        context.undo.stop_sequences,
        context.fan_out,
        [(loss.code, loss.path) for loss in ledger],
    )


@pytest.mark.parametrize(
    ("params", "options", "left", "stops", "responses", "lost"),
    [
        ({}, {}, {}, (), 1, []),
        ({"temperature": 0}, {}, {"temperature": 0}, (), 1, []),
        # False is what upstreams without the setting do anyway.
        ({"store": False}, {"refuses": frozenset({"store"})}, {}, (), 1, []),
        ({"store": True}, {"refuses": frozenset({"store"})}, {}, (), 1, ["/store"]),
        (
            {"temperature": 0, "seed": 1},
            {"refuses": frozenset({"temperature", "top_p"})},
            {"seed": 1},
            (),
            1,
            ["/temperature"],
        ),
        ({"stop": "a"}, {}, {"stop": "a"}, (), 1, []),
        ({"stop": ["a", "b"]}, {}, {"stop": ["a"]}, ("b",), 1, []),
        ({"stop": ["a", "b"]}, {"spec": MANY}, {"stop": ["a", "b"]}, (), 1, []),
        # a model that refuses `stop` loses nothing: it is looked for
        ({"stop": ["a"]}, {"refuses": frozenset({"stop"})}, {}, ("a",), 1, []),
        ({"n": 1}, {}, {}, (), 1, []),
        ({"n": 2}, {"spec": MANY}, {"n": 2}, (), 1, []),
        ({"n": 2}, {"max_fan_out": 4}, {}, (), 2, []),
        ({"n": 2}, {"max_fan_out": 4, "spec": MANY, "refuses": frozenset({"n"})}, {}, (), 2, []),
    ],
)
def test_which_settings_are_left(
    params: dict[Param, Any],
    options: dict[str, Any],
    left: dict[Param, Any],
    stops: tuple[str, ...],
    responses: int,
    lost: list[str],
) -> None:
    assert fitted(params, **options) == (left, stops, responses, [(LossCode.DROPPED, path) for path in lost])


@pytest.mark.parametrize(
    ("value", "max_fan_out", "code", "message"),
    [
        (0, 4, "invalid_value", "n must be a positive integer"),
        (True, 4, "invalid_value", "n must be a positive integer"),
        ("2", 4, "invalid_value", "n must be a positive integer"),
        (2, 1, "unsupported_value", "send one request for each choice"),
        (9, 4, "unsupported_value", "request at most 4 at once"),
    ],
)
def test_more_choices_than_the_upstream_supports(
    value: Any, max_fan_out: int, code: str, message: str
) -> None:
    with pytest.raises(RequestRefused, match=message) as caught:
        fitted({"n": value}, max_fan_out=max_fan_out)
    assert (caught.value.path, caught.value.code, caught.value.status) == ("/count", code, 400)


SAMPLING: dict[Param, Any] = {"temperature": 0.5, "top_p": 0.9, "top_logprobs": 2, "frequency_penalty": 1}
AT_NONE = {"refuses": frozenset(SAMPLING), "sampling_at_none": True}
PENALTY, ALL = ["/frequency_penalty"], [f"/{name}" for name in SAMPLING]


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        pytest.param({"sampling_pair": False}, ["/top_p"], id="the temperature is kept"),
        pytest.param({"sampling_pair": False, "refuses": frozenset({"temperature"})}, ["/temperature"]),
        pytest.param({"sampling_pair": False, "refuses": frozenset({"top_p"})}, ["/top_p"]),
        # its default effort is none
        (AT_NONE, PENALTY),
        ({**AT_NONE, "sampling_pair": False}, [*PENALTY, "/top_p"]),
        ({**AT_NONE, "reasoning": ReasoningConfig(display="omitted")}, PENALTY),
        ({**AT_NONE, "reasoning": ReasoningConfig(effort="none")}, PENALTY),
        ({**AT_NONE, "reasoning": ReasoningConfig("disabled", "high")}, PENALTY),
        ({**AT_NONE, "reasoning": ReasoningConfig(effort="minimal"), "efforts": ("none", "low")}, PENALTY),
        ({**AT_NONE, "reasoning": ReasoningConfig(effort="low")}, ALL),
        ({**AT_NONE, "reasoning": ReasoningConfig("enabled", budget=2000)}, ALL),
        ({**AT_NONE, "sampling_at_none": False}, ALL),
    ],
)
def test_sampling_that_a_model_takes_at_times(options: dict[str, Any], lost: list[str]) -> None:
    left, _, _, losses = fitted(SAMPLING, **options)
    assert {f"/{name}" for name in SAMPLING.keys() - left.keys()} == set(lost)
    assert sorted(losses, key=str) == sorted([(LossCode.DROPPED, path) for path in lost], key=str)


# Forced tool calls. Models that never accept one, that accept one only without reasoning, and that always reason.
NEVER = Capabilities(forced_tools="no")
NOT_THINKING = Capabilities(forced_tools="not_thinking")
ALWAYS_REASONS = Capabilities(forced_tools="not_thinking", efforts=("low", "high"))
UNKNOWN_SETTING = ChatCapabilities(forced_tools="not_thinking", reasoning_setting=None)
NEVER_REASONS = ChatCapabilities(forced_tools="not_thinking", efforts=(), reasoning_setting=None)
REQUIRED = ToolChoice("required", path="/tool_choice")
NAMED = ToolChoice("named", "f", path="/tool_choice")
OFF = ReasoningConfig(mode="disabled")


STRICT = FunctionTool("f", strict=True, path="/tools/0")
LOOSE = FunctionTool("g", strict=False, path="/tools/1")
PLAIN = (FunctionTool("f", path="/tools/0"), FunctionTool("g", path="/tools/1"))
SEARCH = HostedTool("toy", "web_search", {})


@pytest.mark.parametrize(
    ("refuses", "fields", "left", "lost"),
    [
        (set(), {"tools": (STRICT, LOOSE), "parallel_tool_calls": False}, None, []),
        ({"tool_strict"}, {"tools": (PLAIN[0], SEARCH)}, None, []),
        (
            {"tool_strict"},
            {"tools": (STRICT, LOOSE, SEARCH)},
            {"tools": (*PLAIN, SEARCH)},
            ["/tools/0/strict"],
        ),
        ({"parallel_tool_calls"}, {}, None, []),
        ({"parallel_tool_calls"}, {"parallel_tool_calls": True}, {"parallel_tool_calls": None}, []),
        (
            {"parallel_tool_calls"},
            {"parallel_tool_calls": False, "parallel_path": "/one"},
            {"parallel_tool_calls": None},
            ["/one"],
        ),
    ],
)
def test_settings_of_tools(refuses: Any, fields: Any, left: Any, lost: list[str]) -> None:
    ledger = Ledger()
    request = Request("toy", "m", (), **fields)
    out = fit_tool_settings(request, pass_context(request, ledger, Capabilities(refuses=frozenset(refuses))))
    assert out == (request if left is None else msgspec.structs.replace(request, **left))
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.DROPPED, path) for path in lost]


def allowed(required: bool) -> ToolChoice:
    return ToolChoice("allowed", allowed=(ToolRef("f"),), required=required, path="/tool_choice")


@pytest.mark.parametrize(
    ("capabilities", "choice", "reasoning", "sent", "thinking", "lost"),
    [
        (Capabilities(), REQUIRED, None, REQUIRED, None, []),
        (NEVER, None, None, None, None, []),
        (NEVER, ToolChoice("none"), None, ToolChoice("none"), None, []),
        (NEVER, REQUIRED, None, None, None, ["/tool_choice"]),
        (NEVER, NAMED, None, None, None, ["/tool_choice"]),
        (NEVER, allowed(True), None, allowed(False), None, ["/tool_choice"]),
        (NEVER, allowed(False), None, allowed(False), None, []),
        (NOT_THINKING, ToolChoice("auto"), None, ToolChoice("auto"), None, []),
        # it may think by default
        (NOT_THINKING, NAMED, None, NAMED, OFF, []),
        (NOT_THINKING, NAMED, ReasoningConfig(effort="none"), NAMED, OFF, []),
        (NOT_THINKING, NAMED, ReasoningConfig(mode="disabled", path="/thinking"), NAMED, OFF, []),
        (NOT_THINKING, NAMED, ReasoningConfig(mode="adaptive", path="/thinking"), NAMED, OFF, ["/thinking"]),
        (NOT_THINKING, NAMED, ReasoningConfig(effort="low"), NAMED, OFF, ["/reasoning"]),
        (ALWAYS_REASONS, NAMED, None, None, None, ["/tool_choice"]),
        (UNKNOWN_SETTING, NAMED, None, None, None, ["/tool_choice"]),
        (NEVER_REASONS, NAMED, None, NAMED, None, []),
    ],
)
def test_a_forced_call_and_reasoning(
    capabilities: Capabilities,
    choice: ToolChoice | None,
    reasoning: ReasoningConfig | None,
    sent: ToolChoice | None,
    thinking: ReasoningConfig | None,
    lost: list[str],
) -> None:
    ledger = Ledger()
    request = Request("toy", "m", (), tool_choice=choice, reasoning=reasoning)
    out = fit_tool_settings(request, pass_context(request, ledger, capabilities))
    assert (out.tool_choice, out.reasoning) == (sent, thinking)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.ALTERED, path) for path in lost]


@pytest.mark.parametrize(
    ("keys", "params", "named", "sent"),
    [
        (True, {}, "s1", "s1"),
        pytest.param(True, {"prompt_cache_key": "own"}, "s1", "own", id="the client's own"),
        pytest.param(False, {}, "s1", None, id="a host that knows no such member"),
        (True, {"seed": 1}, None, None),
    ],
)
def test_a_session_names_the_cache_of_the_prompt(
    keys: bool, params: dict[Param, Any], named: str | None, sent: str | None
) -> None:
    request = Request("toy", "m", (), params=params)
    out = add_cache_key(
        request, pass_context(request, None, Capabilities(cache_keys=keys), cache_key=lambda: named)
    )
    assert out.params == params | ({} if sent is None else {"prompt_cache_key": sent})
    without = pass_context(request, None, Capabilities(cache_keys=keys))
    assert add_cache_key(request, without) is request
    refuses = Capabilities(cache_keys=keys, refuses=frozenset(("prompt_cache_key",)))
    assert add_cache_key(request, pass_context(request, None, refuses, cache_key=lambda: named)) is request


@pytest.mark.parametrize(
    ("most", "asked", "sent"),
    [(None, 32000, 32000), (16384, 32000, 16384), (16384, 16384, 16384), (16384, "9", "9")],
)
def test_a_limit_that_the_model_refuses_is_lowered(most: int | None, asked: Any, sent: Any) -> None:
    params, _, _, losses = fitted({"max_output_tokens": asked}, max_output_tokens=most)
    assert params == {"max_output_tokens": sent}
    assert [code for code, _ in losses] == ([] if asked == sent else [LossCode.ALTERED])
