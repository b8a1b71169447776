"""The interface of all machines that read a response for a client: they translate it, relay it, or merge several."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from dragoman._ir.events import StopReason, Usage
from dragoman._ir.losses import Ledger
from dragoman._transforms.reasoning_cache import CachedReasoning
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSONObject


class Outcome(Enum):
    """How a response ended."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"


# For what asks at each read: CPython 3.11 takes as long to look up a member of an enum as for several calls.
OPEN, COMPLETED = Outcome.OPEN, Outcome.COMPLETED


class ResponseMachine(Protocol):
    """One response on its way to the client.

    ResponseTranslator and Relay take the upstream's bytes with receive_data(), FanOut the bytes of several responses.
    Call receive_eof() at their end, or fail() if the upstream cannot go on (timeout, reset), and send what
    data_to_send() returns after each. If the outcome is COMPLETED before the upstream's end, close the upstream.

    None of these methods raises for what the upstream did: see `outcome` and `error`.

    Attributes:
        losses: What the client does not get.
        outcome: How the response ended, OPEN until then.
        error: Why it FAILED, else None.
        usage: The tokens that were reported so far.
        stop_reason: Why the first choice ended, None until then.
        upstream_model: The model that the upstream reported, None until then.
        upstream_id: The upstream's id of the response, None until then.
        committed: Content was received. Until then an error can be a plain HTTP error.
    """

    losses: Ledger
    outcome: Outcome
    error: WireError | None = None
    usage: Usage
    stop_reason: StopReason | None = None
    upstream_model: str | None = None
    upstream_id: str | None = None
    committed: bool = False

    @property
    def held_bytes(self) -> int:
        """The bytes that wait for what follows: of an unfinished event, of a whole body, of blocks that wait for
        another to end, or of texts that the end repeats, by what they cost. The next read may take as long as they and
        its own bytes."""
        return 0

    def receive_eof(self) -> None:
        """Take the clean end of the upstream's body. A response that is not complete then becomes an error."""

    def fail(self, error: WireError) -> None:
        """End the response with an error, in the client's own form. No effect once it has ended."""

    def data_to_send(self) -> bytes:
        """Return the bytes for the client: whole frames, or a whole body at the end. b"" if nothing is ready."""

    def heartbeat(self) -> bytes:
        """Return bytes that keep the client's connection alive, legal now between two frames. b"" if there are none."""

    def whole_body(self) -> JSONObject | None:
        """Return the response as one document once it is COMPLETED, of a stream only with `store_response`.

        A stream that FAILED has one if the client's protocol has a form for it (ProtocolSpec.failed_bodies).
        """

    def cached_reasoning(self) -> CachedReasoning | None:
        """Return reasoning that the client will probably not send back, with the ids of the tool calls to find it by.

        None if there is none. A later request gets it by `reasoning_lookup` of RequestTranslator.translate().
        """
        return None
