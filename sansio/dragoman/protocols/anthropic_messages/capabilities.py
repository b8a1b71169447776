"""What a Messages server and its models accept."""

from typing import Annotated, Literal

from dragoman._ir.capabilities import Capabilities, MidSystem, TokenLimit


class MessagesCapabilities(Capabilities, frozen=True):
    """What one Messages upstream accepts."""

    max_tokens: Annotated[TokenLimit, "max_tokens when the client sends none; it is required"] = 32000
    thinking: Annotated[
        Literal["adaptive", "budget", "none"], "thinking is accepted by effort, by budget, or not at all"
    ] = "adaptive"
    sampling: Annotated[bool, "accepts temperature, top_p and top_k"] = True
    mid_system: MidSystem = False

    @property
    def default_max_tokens(self) -> int:
        """The limit if the client sent none."""
        return min(self.max_tokens, self.max_output_tokens or self.max_tokens)
