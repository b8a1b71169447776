"""What a Chat Completions server accepts: these differ more than servers of any other protocol."""

from typing import Annotated, Literal

from dragoman._ir.capabilities import CacheMarks, Capabilities, MidSystem, ThoughtSignatures, ToolImages


class ChatCapabilities(Capabilities, frozen=True):
    """What one Chat Completions upstream accepts."""

    max_tokens_field: Annotated[
        Literal["max_completion_tokens", "max_tokens"], "name of the output limit"
    ] = "max_completion_tokens"
    reasoning_field: Annotated[
        Literal["reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "thinking_blocks"]
        | None,
        "member in which earlier reasoning is accepted",
    ] = "reasoning_content"
    reasoning_setting: Annotated[
        Literal["reasoning_effort", "reasoning", "thinking", "enable_thinking"] | None,
        "setting of the reasoning effort: a string, {effort}, {type}, or true and false",
    ] = "reasoning_effort"
    thinking_type: Annotated[
        Literal["enabled", "adaptive"], "type that requests reasoning where reasoning_setting is thinking"
    ] = "enabled"
    reasoning_back: Annotated[
        Literal["never", "tool_loop", "always"],
        "turns whose reasoning is required back: none, those with tool calls, or all; a blank replaces lost reasoning",
    ] = "never"
    thought_signatures: ThoughtSignatures = False
    text_content: Annotated[
        Literal["string", "parts"], "accepted content of text messages: one string only, or parts as well"
    ] = "string"
    turn_order: Annotated[
        Literal["any", "no_user_after_tool", "alternate"],
        "accepted order of turns; no_user_after_tool: user text after a tool's result becomes part of it; alternate:"
        " also no two turns of one role, and no assistant first",
    ] = "any"
    tool_images: ToolImages = False
    developer_role: Annotated[bool, "accepts the role developer; else system is sent"] = False
    mid_system: MidSystem = False
    cache_marks: CacheMarks = "none"
    tools_with_effort: Annotated[bool, "accepts tools together with reasoning_effort"] = True

    @property
    def requires_user_first(self) -> bool:
        return self.turn_order == "alternate"

    @property
    def can_disable_reasoning(self) -> bool:
        """True if there is a setting by which reasoning is disabled."""
        return self.reasoning_setting is not None and super().can_disable_reasoning
