"""What a Gemini server and its models accept."""

from typing import Annotated, Literal

from dragoman._ir.capabilities import Capabilities, ThoughtSignatures, ToolImages


class GeminiCapabilities(Capabilities, frozen=True):
    """What one Gemini upstream accepts. The defaults are those of the newest models."""

    thinking_by: Annotated[
        Literal["level", "budget", "none"], "thinkingConfig has a level, a budget, or is refused"
    ] = "level"
    thought_signatures: ThoughtSignatures = True
    tool_images: ToolImages = True
    schema_dialect: Annotated[
        Literal["json_schema", "openapi"], "schemas are JSON Schema, or in the vendor's subset of OpenAPI"
    ] = "json_schema"
    function_ids: Annotated[bool, "accepts ids of function calls and responses; else they are left out"] = (
        True
    )
    mixed_tools: Annotated[bool, "accepts tools that it runs itself together with functions"] = True

    @property
    def requires_user_first(self) -> bool:
        return True
