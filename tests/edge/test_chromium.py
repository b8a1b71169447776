"""Pages in a real Chromium against a gateway without client keys: one of another origin and one that has rebound its
own name can neither spend nor read; one of this machine works as documented.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_pages import Pages, browse
from edge import CHAT_STREAM, CHAT_WHOLE, STREAM_HEAD, Conversation, EdgeGateway, Upstream, whole

pytestmark = [pytest.mark.process, pytest.mark.promise("S1", "S15")]

ADMIN_KEY = "0123456789abcdef" * 2
BODY = '{"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}'
# What all scripts have, beside the address of the gateway (GATE).
CONSTANTS = f"""
const BODY = {json.dumps(BODY)}, ADMIN = {{"x-api-key": "{ADMIN_KEY}"}};
const JSON_TYPE = {{"content-type": "application/json"}}, TEXT_TYPE = {{"content-type": "text/plain"}};
const PATH = "/v1/chat/completions";
"""

# Each way by which a page can make the browser send something, and what the page sees of the response. The time is
# for those that get no response; a beacon shows nothing in any case. The form's field makes a text that is JSON.
ATTACK = Path(__file__).with_name("attack.js").read_text("utf-8")

REBOUND = """
const read = async (url, options) => {
  const answer = await fetch(url, options);
  return [answer.status, await answer.text()];
};
return {
  json: await read(PATH, {method: "POST", headers: JSON_TYPE, body: BODY}),
  models: await read("/v1/models"),
  admin: await read("/admin/accounts", {headers: ADMIN}),
};
"""

# As docs/simple-api.md has it.
WORKS = """
const said = [];
const json = await fetch(GATE + PATH, {method: "POST", headers: JSON_TYPE, body: BODY});
const whole = await json.json();
const models = await (await fetch(GATE + "/v1/models", {headers: {"x-api-key": "any"}})).json();
EXAMPLE
return {whole, said, models, id: json.headers.get("dragoman-request-id")};
"""
SIMPLE_API = Path(__file__).parents[2] / "docs" / "simple-api.md"
(EXAMPLE,) = re.findall(r"^```js\n(.*?)^```", SIMPLE_API.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def responses(conversation: Conversation) -> None:
    while (request := conversation.read()) is not None:
        if b'"stream":true' in request.replace(b" ", b""):
            conversation.send(STREAM_HEAD + CHAT_STREAM)
            return
        conversation.send(whole(CHAT_WHOLE))


class Browsed:
    """Return what the pages saw, by their names, and the number of requests that the upstream got until each report."""

    def __init__(self, tmp_path: Path) -> None:
        pages = Pages()
        with Upstream(pages) as server, Upstream(responses) as upstream:
            known = f"http://known.example:{server.port}"
            settings = (
                f'secret = "{ADMIN_KEY}x"\nadmin_key = "{ADMIN_KEY}"\ndefault_model = "up/m"\n'
                f'allowed_hosts = ["known.example"]\ncors_origins = ["loopback", "{known}"]\n'
            )
            with EdgeGateway(tmp_path, upstream, backend="asyncio", server=settings).ready() as gateway:
                pages.behind = gateway.port
                gate = f"http://127.0.0.1:{gateway.port}"
                example = EXAMPLE.replace("http://127.0.0.1:8080", gate)
                example = example.replace("console.log(", "said.push(")
                pages.pages = {
                    "/attack": CONSTANTS + f"const GATE = '{gate}';" + ATTACK,
                    "/rebind": CONSTANTS + REBOUND,
                    "/works": CONSTANTS + f"const GATE = '{gate}';" + WORKS.replace("EXAMPLE", example),
                }
                urls = {
                    "another origin": f"http://evil.example:{server.port}/attack",
                    "rebound": f"http://rebind.evil.example:{server.port}/rebind",
                    "a known name": f"{known}/rebind",
                    "of this machine": f"http://localhost:{server.port}/works",
                }
                names = ["evil.example", "rebind.evil.example", "known.example"]
                self.seen = dict(zip(urls, browse(pages, list(urls.values()), names), strict=True))
            self.statuses = [line["status"] for line in gateway.log() if line.get("outcome") == "refused"]
            self.requests = [request for each in upstream.conversations for request in each.requests]


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    return Browsed(tmp_path_factory.mktemp("chromium"))


def test_a_page_of_another_origin_sees_nothing(browsed: Browsed) -> None:
    seen: dict[str, Any] = browsed.seen["another origin"]
    # Without permission, a page learns only that there was a response.
    opaque = {"no_cors", "no_cors_keepalive", "get_no_cors"}
    assert {name: text for name, text in seen.items() if text not in ("nothing", "opaque 0 ")} == {}
    assert {name for name, text in seen.items() if text == "opaque 0 "} <= opaque


def test_a_page_that_has_rebound_its_name_sees_only_the_refusal(browsed: Browsed) -> None:
    for status, text in browsed.seen["rebound"].values():
        assert status == 421
        assert "server.allowed_hosts" in text


def test_the_names_in_the_configuration_work(browsed: Browsed) -> None:
    """So it was the name that was refused above, and nothing else."""
    statuses = {name: status for name, (status, _) in browsed.seen["a known name"].items()}
    assert statuses == {"json": 200, "models": 200, "admin": 200}


def test_a_page_of_this_machine_works_as_documented(browsed: Browsed) -> None:
    seen = browsed.seen["of this machine"]
    assert seen["whole"]["choices"][0]["message"]["content"] == "Hello"
    assert "".join(seen["said"]) == "Hello"
    assert [model["id"] for model in seen["models"]["data"]]
    assert seen["id"]


def test_only_allowed_pages_called_the_upstream(browsed: Browsed) -> None:
    # One request of the page under the known name, two of the one of this machine.
    assert len(browsed.requests) == 3
    # All that the attacker sent was refused by the gateway, and not only held back by the browser: what needs a
    # preflight (3), what does not (13, with the form and the frame).
    assert browsed.statuses.count(403) >= 16
    assert browsed.statuses.count(421) >= 3  # Chromium tries a 421 again on another connection
    assert set(browsed.statuses) == {403, 421}
