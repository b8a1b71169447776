"""The law of prompt caches, through the gateway: also where accounts change, fail or are added, and over reloads.

Conversations and law are those of conformance/test_prompt_caches.py. Three accounts of one upstream fail now and then,
so that others have to go on; then a second upstream, of another protocol, takes the request. From some turn on a client
may continue a stored response: it sends only what is new, and the gateway inserts the rest.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio
import pytest
from failures.responses import Call, Reasoning
from gateway.fakes import Script as ScriptedResponse
from gateway.fakes import account_of, call, key_of
from gateway.provider import BASES, EPOCH, Plays, Provider, RawResponse, good
from hypothesis import example, given, settings
from hypothesis import strategies as st
from laws.clients import endpoint_of
from laws.conversations import MODEL, SCRIPTS, Script, Turn, check_prefixes, is_from_client, requests
from msgspec.structs import replace
from oracle import GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES
from virtual_time import VIRTUAL_BACKENDS, backend

from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.app import Application
from dragoman_server.gateway import Gateway
from dragoman_server.settings import AccountSettings, ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import hash_client_key, make_signer
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import UpstreamUnreachable

# Of each pair of protocols.
CONVERSATIONS = max(int(os.environ.get("CONVERSATIONS", "60")) // 10, 1)

SECRET = Secret("canary-of-a-gateway-with-prompt-caches")
SIGNER = make_signer(SECRET)
ANSWER = good("fine", also=(Reasoning("hm"), Call("call_1", "read")))


def refusal(status: int, message: str, code: str = "", **headers: str) -> RawResponse:
    """An error that the readers of all protocols understand."""
    error = {"type": code or "error", "code": code or None, "message": message}
    body = json.dumps({"type": "error", "error": error}).encode()
    return RawResponse([body], status, tuple(headers.items()))


FAILURES: dict[str, Plays] = {
    "limited": refusal(429, "too many requests", **{"retry-after": "100"}),
    "broken": refusal(500, "the server had an error"),
    "overloaded": refusal(503, "overloaded"),
    "disabled": refusal(401, "invalid api key", "invalid_api_key"),
    "unreachable": RawResponse(before=[UpstreamUnreachable("cannot connect")]),
}
ACCOUNTS = ("a", "b", "c")
WITHOUT_KEYS = (MESSAGES, GEMINI)
LAST = "z"  # of the fallback, and never fails


class Before(NamedTuple):
    """What happens before a request: silence, a reload, and which accounts fail from then on."""

    pause: float
    reload: str
    failures: Mapping[str, str]


BEFORE = st.builds(
    Before,
    st.sampled_from([0.0, 0.0, 1.0, 200.0]),
    st.sampled_from(["", "", "accounts", "models", "keys", "removed"]),
    st.fixed_dictionaries({each: st.sampled_from(["", "", *FAILURES]) for each in ACCOUNTS}),
)


class World(NamedTuple):
    """before: each request, again and again.

    fallback: the protocol of the second upstream. session: where the client names its session. strict: accounts which
    cannot read the signatures in the conversations. refused: a member that the first upstream does not know.
    continued: the first turn that continues the stored response of the one before; none at 0.
    """

    before: list[Before]
    fallback: str
    session: str
    sticky: bool
    relay: str
    strict: frozenset[str]
    refused: str
    continued: int


WORLDS = st.builds(
    World,
    st.lists(BEFORE, min_size=1, max_size=12),
    st.sampled_from(PROTOCOL_NAMES),
    st.sampled_from(["", "header", "prompt_cache_key", "metadata"]),
    st.booleans(),
    st.sampled_from(["exact", "rewrite"]),
    st.frozensets(st.sampled_from(ACCOUNTS), max_size=2),
    st.sampled_from(["", "", "metadata", "store"]),
    st.sampled_from([0, 1, 2, 3]),
)


class Upstreams(Provider):
    """A provider that refuses what the world says. Each request is kept."""

    def __init__(self, world: World, protocol: str) -> None:
        super().__init__(
            {"up": protocol, "other": world.fallback}, {each: [ANSWER] for each in (*ACCOUNTS, LAST)}
        )
        self._world = world

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> ScriptedResponse:
        account = account_of(headers)
        before, refused = self._plays[account], self._refusal(account, content)
        if refused is not None:
            self._plays[account] = [refused]
        found = super().script_for(url, headers, content)
        self._plays[account] = before
        return found

    def _refusal(self, account: str, content: bytes) -> Plays | None:
        if account == LAST:
            return None
        body = json.loads(content)
        if self._world.refused in body:
            return refusal(400, f"Unsupported parameter: '{self._world.refused}'", "unsupported_parameter")
        if account in self._world.strict:
            if any(item.get("encrypted_content") for item in body.get("input") or ()):
                return refusal(400, "the content could not be verified", "invalid_encrypted_content")
            blocks = [block for each in body.get("messages") or () for block in each["content"] or ()]
            if any(type(block) is dict and "signature" in block for block in blocks):
                return refusal(400, "messages.1.content.0: Invalid `signature` in `thinking` block")
        return None


@dataclass
class Session:
    """A conversation of one client through a gateway. bodies: what each upstream got and accepted, in order."""

    world: World
    client: str
    upstream: str
    bodies: dict[str, list[bytes]] = field(default_factory=dict)

    async def run(self, script: Script) -> None:
        named = {"prompt_cache_key": "mine"} if self.world.session == "prompt_cache_key" else {}
        if self.world.session == "metadata":
            named = {"metadata": {"user_id": "someone"}}
        headers = {"x-api-key": "drk_red", **({"session-id": "s"} if self.world.session == "header" else {})}
        provider = Upstreams(self.world, self.upstream)
        configured = self._settings()
        continued = self.world.continued if self.client == RESPONSES else 0
        if continued:
            named["store"] = True
        app = Application(Gateway(configured, provider, accounts=MemoryAccountStore()))
        async with app.lifespan():
            self._use_virtual_time(app, configured)
            sent: list[Any] = []
            previous = ""
            for number, body in enumerate(requests(script, self.client, SIGNER, named)):
                before = self.world.before[number % len(self.world.before)]
                await anyio.sleep(before.pause)
                if before.reload:
                    configured = reloaded(configured, before.reload)
                    await app.reload(configured)
                    self._use_virtual_time(app, configured)
                for account, failure in before.failures.items():
                    provider.play(account, FAILURES[failure] if failure else ANSWER)
                if continued:
                    whole, sent = sent, json.loads(body)["input"]
                    if number >= continued:
                        body = continuing(body, len(whole), previous)
                first = len(provider.sent)
                response = await call(
                    app, endpoint_of(self.client).path.format(model=MODEL), body, headers=headers
                )
                if response.status != 200:
                    assert response.status == 400, response.body
                    return  # this world cannot have such a conversation
                previous = json.loads(response.body)["id"] if continued else ""
                self._keep(provider, first)

    def _keep(self, provider: Provider, first: int) -> None:
        """Keep what was accepted. Accounts that read no signatures have their own cache, as all have in fact."""
        for sent in provider.sent[first:]:
            script = sent.fake.script
            if script is not None and script.status == 200 and not script.connect:
                where = sent.account if sent.account in self.world.strict else sent.url.split("/")[2]
                self.bodies.setdefault(where, []).append(sent.content)

    def _settings(self) -> Settings:
        upstreams = [
            UpstreamSettings.of(
                name=name,
                protocol=protocol,
                base_url=BASES[protocol].format(name),
                sticky=self.world.sticky,
                relay=self.world.relay,
                cache_keys=protocol not in WITHOUT_KEYS,
            )
            for name, protocol in (("up", self.upstream), ("other", self.world.fallback))
        ]
        return Settings(
            server=ServerSettings(
                simulator=False, secret=SECRET, response_store="memory" if self.world.continued else "off"
            ),
            upstreams=tuple(upstreams),
            accounts=tuple(
                AccountSettings(upstream=name, name=account, api_key=Secret(key_of(account)))
                for name, account in (*[("up", each) for each in ACCOUNTS], ("other", LAST))
            ),
            models={MODEL: (f"up/{MODEL}", f"other/{MODEL}")},
            client_keys=(client_key("red"),),
        )

    @staticmethod
    def _use_virtual_time(app: Application, configured: Settings) -> None:
        pool = app._served.gateway.pool
        pool.clock, pool.random = lambda: EPOCH + anyio.current_time(), lambda: 0.0

    def check(self, marks: bool) -> None:
        for where, bodies in self.bodies.items():
            protocol = self.world.fallback if where == "other.test" else self.upstream
            check_prefixes(bodies, protocol, marks)
        # An exact relay adds no key.
        keys = {
            json.loads(body).get("prompt_cache_key")
            for where, bodies in self.bodies.items()
            for body in bodies
            for protocol in [self.world.fallback if where == "other.test" else self.upstream]
            if protocol not in WITHOUT_KEYS and (protocol != self.client or self.world.relay == "rewrite")
        }
        assert len(keys) <= 1, keys
        assert None not in keys


def continuing(body: bytes, known: int, previous: str) -> bytes:
    """Return a request that continues a response. known: so many items were sent before; the model's are stored."""
    whole = json.loads(body)
    new = [each for each in whole["input"][known:] if is_from_client(each)]
    return json.dumps({**whole, "input": new, "previous_response_id": previous}).encode()


def client_key(name: str) -> ClientKey:
    return ClientKey(name=name, hash=hash_client_key(f"drk_{name}", SECRET))


def reloaded(configured: Settings, change: str) -> Settings:
    """Return a configuration that leads the conversation to the same places."""
    if change == "accounts":
        return replace(configured, accounts=configured.accounts[::-1])
    if change == "models":
        return replace(configured, models={"another": "other/another", **configured.models})
    if change == "keys":
        return replace(configured, client_keys=(client_key("blue"), client_key("red")))
    return replace(configured, accounts=tuple([each for each in configured.accounts if each.name != "a"]))


def quiet(continued: int) -> World:
    return World([Before(0.0, "models", {})], MESSAGES, "", True, "exact", frozenset(), "", continued)


# A client that has sent the model's answers by itself, with ids and signatures, and then continues what is stored.
SWITCHES = Script(
    (),
    tuple(
        [
            Turn((text,), "", reasoning, ("ok",), (("call_1", "read"),), (0,), "done")
            for text, reasoning in (("a", "own"), ("b", f"wrapped {RESPONSES}"), ("c", ""), ("d", ""))
        ]
    ),
    False,
)


@pytest.mark.promise("R14")
@pytest.mark.parametrize("upstream", PROTOCOL_NAMES)
@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@settings(max_examples=CONVERSATIONS, deadline=None, derandomize=True, database=None)
@given(SCRIPTS, WORLDS, st.sampled_from(VIRTUAL_BACKENDS))
@example(SWITCHES, quiet(2), "asyncio")
def test_what_an_upstream_gets_begins_with_what_it_got(
    client: str, upstream: str, script: Script, world: World, backend_name: str
) -> None:
    session = Session(world, client, upstream)
    name, options = backend(backend_name)
    anyio.run(session.run, script, backend=name, backend_options=options)
    session.check(script.marks and client == MESSAGES)
