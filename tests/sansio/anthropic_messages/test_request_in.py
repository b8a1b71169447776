"""Bodies of clients, read into the neutral request."""

from typing import Any

import pytest

from dragoman import LossPolicy, RequestTranslator, TranslatedRequest, peek
from dragoman._ir.losses import LossCode
from dragoman._wire.json import decode
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

NAME = "anthropic_messages"


LINE = "x-anthropic-billing-header: cc_version=2.1.329.01c; cc_entrypoint=cli; cch=36ee5;"


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
