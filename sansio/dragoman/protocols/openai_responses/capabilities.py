"""What a Responses server accepts."""

from typing import Annotated, Literal

from dragoman._ir.capabilities import CacheMarks, Capabilities


class ResponsesCapabilities(Capabilities, frozen=True):
    """What one Responses upstream accepts."""

    cache_marks: CacheMarks = "none"
    summaries: Annotated[
        Literal["auto", "requested", "never"],
        "summaries of reasoning are requested: with reasoning, if the client requests to see it, or never",
    ] = "requested"
    additional_tools: Annotated[
        bool, "accepts items of the input that declare tools; else they are sent among the request's tools"
    ] = True
    encrypted_reasoning: Annotated[
        bool, "request encrypted reasoning for all clients, so that it is kept between tool calls"
    ] = False
