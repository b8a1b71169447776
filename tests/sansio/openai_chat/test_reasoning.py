"""Earlier reasoning: what clients send back, and what is sent to upstreams."""

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Reasoning, Request
from dragoman._ir.wrapped_signatures import Signer
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

CHAT = "openai_chat"
AT = "/messages/0"


def test_cached_reasoning_is_written_in_place_of_the_clients() -> None:
    raw = {"model": "m", "messages": [{"role": "assistant", "content": "a"}]}
    request = SPEC.read_request(raw, Signer())
    reasoning = Reasoning("", Signature(CHAT, {"reasoning_content": "hm"}), path=AT)
    turn = Message("assistant", (reasoning, *request.messages[0].parts), AT)
    body = SPEC.write_request(Request(CHAT, "m", (turn,), native=raw), Capabilities(), Ledger())
    assert body["messages"] == [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]
