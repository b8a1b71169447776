"""Bodies of clients, read into the neutral request."""

from typing import Any

import pytest
from core.natives import with_unknown_members

from dragoman import LossPolicy, RequestTranslator, TranslatedRequest, peek
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, OpaquePart, Request, Text
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import decode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

NAME = "anthropic_messages"
HELLO = {"role": "user", "content": "Hello"}


def read(*messages: Any, **fields: Any) -> Request:
    """Read a body with a message of the user and `messages`. A field "absent" is left out."""
    body = {"model": "claude-x", "max_tokens": 9, "messages": [HELLO, *messages], **fields}
    return with_unknown_members(
        SPEC,
        SPEC.read_request({key: value for key, value in body.items() if value != "absent"}, Signer(b"key")),
    )


LINE = "x-anthropic-billing-header: cc_version=2.1.329.01c; cc_entrypoint=cli; cch=36ee5;"


def header(block: Any, path: str = "/system/0") -> OpaquePart:
    return OpaquePart(NAME, "billing header", block, path, "")


@pytest.mark.parametrize(
    ("system", "parts"),
    [
        (
            [
                {"type": "text", "text": LINE, "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Be brief."},
            ],
            (
                header({"type": "text", "text": LINE, "cache_control": {"type": "ephemeral"}}),
                Text("Be brief.", path="/system/1"),
            ),
        ),
        (LINE, (header({"type": "text", "text": LINE}, "/system"),)),
        (
            f"{LINE}\n\nBe brief.",
            (header({"type": "text", "text": LINE}, "/system"), Text("Be brief.", path="/system")),
        ),
        (f"Say {LINE}", (Text(f"Say {LINE}", path="/system"),)),
    ],
)
def test_the_billing_header_is_no_system_text(system: Any, parts: tuple[Any, ...]) -> None:
    request = read(system=system)
    assert request.messages[0] == Message("system", parts, "/system")
    printed = SPEC.write_request(request, Capabilities(), Ledger())["system"]
    texts = [block["text"] for block in (printed if isinstance(printed, list) else [{"text": printed}])]
    assert "".join(texts).replace("\n", "") == "".join(
        [system] if isinstance(system, str) else [block["text"] for block in system]
    ).replace("\n", "")


BLOCK = '{"type":"text","text":"be brief"}'
QUOTED = LINE.replace('"', "")


@pytest.mark.promise("R14")
@pytest.mark.parametrize("relay", ["exact", "rewrite"])
@pytest.mark.parametrize(
    ("system", "left"),
    [
        (f'[{{"type": "text", "text": "{QUOTED}"}}, {BLOCK}]', f"[{BLOCK}]"),
        (f'[{{"text":"{QUOTED}\\n\\nbe","type":"text"}}]', '[{"text":"be","type":"text"}]'),
        (f'"{QUOTED}\\nbe brief"', '"be brief"'),
        (f'[{BLOCK},{{"type":"text","text":"{QUOTED}"}}]', None),
        (f'[ {{"type":"text","text":"not {QUOTED}"}} ]', None),
        (f'[{{"type":"image","x":"{QUOTED}"}}]', None),
        ("[]", None),
        (None, None),
    ],
)
def test_only_its_own_provider_gets_the_billing_header(
    relay: Any, system: str | None, left: str | None
) -> None:
    def sent(accepts: bool, policy: LossPolicy = LossPolicy.RECORD) -> TranslatedRequest:
        capabilities = Capabilities(billing_header=accepts, relay=relay)
        translator = RequestTranslator(client=NAME, upstream=NAME, capabilities=capabilities, policy=policy)
        return translator.translate(body.encode(), request_head=peek(body.encode()))

    member = "" if system is None else f'"system":{system}, '
    body = f'{{"model":"m", "max_tokens":9, {member}"messages":[{{"role":"user","content":"{QUOTED}"}}]}}'
    if relay == "rewrite" and "image" in (system or ""):
        return
    out = sent(False)
    lost = [(loss.code, loss.path) for loss in out.losses]
    assert lost == ([] if left is None else [(LossCode.DROPPED, "/system")])
    assert all("billing of another provider" in loss.detail for loss in out.losses)
    if relay == "exact":
        assert out.body.decode() == (body if system is None or left is None else body.replace(system, left))
        assert sent(True).body == sent(False, LossPolicy.REFUSE).body == body.encode()
    elif left is not None:
        assert QUOTED not in str(decode(out.body)["system"])
