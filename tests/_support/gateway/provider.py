"""A provider with several accounts, whose responses a test scripts, and the gateway in front of it.

pool = pool_of(MESSAGES, {"a": RawResponse(RATE_LIMITED...), "b": GOOD})
client = await pool.call(CHAT, stream=True)
pool.attempted == ["a", "b"]

The provider distinguishes accounts by the key of a request. Time is virtual, for the pool too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from failures.responses import Block, Text, begun, frames
from failures.responses import stream as stream_of
from failures.whole import whole as whole_of
from gateway.fakes import FakeClient, FakeUpstreams, Script, Step, account_of, http_scope, key_of, next_of
from laws.clients import path_of
from oracle import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    check_stream,
    check_whole,
    meaning_of_stream,
    meaning_of_whole,
)
from oracle import samples as s
from oracle.meaning import Kind
from translation import client_request

from dragoman import UPSTREAMS
from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.app import Application
from dragoman_server.gateway import Gateway
from dragoman_server.policy.health import Health
from dragoman_server.proxying.account_pool import AccountPool
from dragoman_server.settings import AccountSettings, RuleSettings, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret

Json = dict[str, Any]
BASES = {name: "http://{}.test" + spec.base_path for name, spec in UPSTREAMS.items()}
# The time of the pool's clock when virtual time begins: 14 Nov 2023, 22:13:20 GMT.
EPOCH = 1_700_000_000.0


@dataclass(frozen=True)
class RawResponse:
    """A response with this status and these bytes. See `good` for a complete one."""

    parts: Sequence[Step] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    before: Sequence[Step] = ()

    def script(self) -> Script:
        return Script(list(self.parts), self.status, list(self.headers), list(self.before))


@dataclass(frozen=True)
class Good:
    """A complete response with this text, streamed if requested. before, between: silence or failures.

    also: what the model makes before the text.
    """

    text: str
    before: Sequence[Step] = ()
    between: Sequence[Step] = ()  # after the text
    headers: tuple[tuple[str, str], ...] = ()
    also: tuple[Block, ...] = ()


@dataclass(frozen=True)
class InBand:
    """A response with status 200 and an error in its body. error: in the provider's form.

    bare: without what usually comes before it, such as `response.created`.
    """

    error: Json
    bare: bool = False


Plays = RawResponse | Good | InBand


def good(text: str, **more: Any) -> Good:
    return Good(text, **more)


def script_of(protocol: str, play: Plays, *, stream: bool) -> Script:
    """What goes over the wire."""
    if isinstance(play, RawResponse):
        return play.script()
    if isinstance(play, InBand):
        return Script([in_band(protocol, play, stream=stream)])
    if not stream:
        body = json.dumps(whole_of(protocol, *play.also, Text(play.text))).encode()
        half = len(body) // 2
        return Script(
            [body[:half], *play.between, body[half:]], headers=list(play.headers), connect=play.before
        )
    data = stream_of(protocol, *play.also, Text(play.text))
    parts, after_text = frames(data), len(begun(data, play.text))
    body_parts: list[Step] = [*parts[:after_text], *play.between, *parts[after_text:]]
    return Script(body_parts, headers=list(play.headers), connect=play.before)


def in_band(protocol: str, play: InBand, *, stream: bool) -> bytes:
    """The body. An error of Responses stands in a failed response, and before that in its own event."""
    if protocol == RESPONSES:
        error_fields = {name: play.error["error"].get(name) for name in ("code", "message")}
        failed = s.response("failed", error=error_fields)
        if not stream:
            return json.dumps(play.error if play.bare else failed).encode()
        beginning: list[s.Payload] = [{"type": "response.created", "response": s.response()}]
        error = {"type": "error", "error": play.error["error"]}
        ending: list[s.Payload] = [error, {"type": "response.failed", "response": failed}]
    else:
        if not stream:
            return json.dumps(play.error).encode()
        beginning = {
            CHAT: [s.chunk({"role": "assistant", "content": ""})],
            MESSAGES: [{"type": "message_start", "message": s.message()}, {"type": "ping"}],
            GEMINI: [s.parts({"text": ""})],
        }[protocol]
        ending = [play.error]
    return s.render(protocol, ending if play.bare else [*beginning, *ending])


class Provider(FakeUpstreams):
    """plays: by account, one for each request in their order; the last one again and again."""

    def __init__(self, protocols: Mapping[str, str], plays: Mapping[str, Sequence[Plays]]) -> None:
        super().__init__()
        self._protocols = protocols  # by the upstream's host
        self._plays = {account: list(each) for account, each in plays.items()}

    def play(self, account: str, play: Plays) -> None:
        """Set the response of an account from now on."""
        self._plays[account] = [play]

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> Script:
        protocol = self._protocols[url.split("/")[2].removesuffix(".test")]
        streams = bool(json.loads(content).get("stream")) or ":streamGenerateContent" in url
        return script_of(protocol, next_of(self._plays[account_of(headers)]), stream=streams)


@dataclass
class PoolGateway:
    app: Application
    pool: AccountPool
    provider: Provider
    store: AccountStore
    _running: int = 0

    @property
    def attempted(self) -> list[str]:
        """The accounts, in the order of their requests."""
        return [each.account for each in self.provider.sent]

    def health(self, account: str) -> Health:
        """account: its name, of the upstream `up`, or with that of another one before a slash."""
        return self.store.health().get(account if "/" in account else f"up/{account}", Health())

    def cooldown_left(self, account: str) -> float:
        """Seconds until the account is available; 0 if it is not cooling down."""
        return max(self.health(account).cooldown_until - self.pool.clock(), 0.0)

    async def call(
        self,
        client: str,
        *,
        stream: bool = True,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        model: str = "up/m",
        **more: Any,
    ) -> FakeClient:
        """Return what the client received. body: more members of its request. more: see FakeClient."""
        attempted = {**client_request(client, "", None, stream=stream), "model": model, **(body or {})}
        fake = FakeClient(json.dumps(attempted).encode(), **more)
        scope = http_scope(path_of(client, model, stream=stream), "POST", dict(headers or {}))
        self._running += 1
        await self.app(scope, fake.receive, fake.send)
        self._running -= 1
        if not self._running:
            assert not self.provider.open_now, "a response is still open"
        return fake


def pool_of(
    protocol: str,
    plays: Mapping[str, Plays | Sequence[Plays]],
    *,
    accounts: Mapping[str, Json] | None = None,
    upstream: Json | None = None,
    rules: Sequence[RuleSettings] = (),
    models: Mapping[str, str | tuple[str, ...]] | None = None,
    others: Mapping[str, tuple[str, Sequence[str]]] | None = None,
    store: AccountStore | None = None,
    random: float = 0.0,
    **server: Any,
) -> PoolGateway:
    """A gateway with the upstream `up`, which speaks `protocol` and has an account for each of `plays`.

    accounts: more settings of accounts, by name. That called `nobody` has no key.
    upstream: settings of all upstreams. The requests of a test are one conversation, so none is sticky by default.
    others: more upstreams, with their protocol and those accounts of `plays` that are theirs.
    random: what chance gives.
    server: settings.
    """
    elsewhere = {account: name for name, (_, theirs) in (others or {}).items() for account in theirs}
    protocols = {"up": protocol, **{name: spoken for name, (spoken, _) in (others or {}).items()}}
    upstreams = [
        UpstreamSettings.of(
            name=name,
            protocol=spoken,
            base_url=BASES[spoken].format(name),
            **{"sticky": False, **(upstream or {})},
        )
        for name, spoken in protocols.items()
    ]
    settings = Settings(
        server=ServerSettings(**{"simulator": False, **server}),
        upstreams=tuple(upstreams),
        accounts=tuple(
            AccountSettings(
                upstream=elsewhere.get(name, "up"),
                name=name,
                api_key=Secret(key_of(name)) if name != "nobody" else None,
                **(accounts or {}).get(name, {}),
            )
            for name in plays
        ),
        rules=tuple(rules),
        models=models or {},
    )
    sequences = {name: [each] if isinstance(each, Plays) else each for name, each in plays.items()}
    provider = Provider(protocols, sequences)
    store = store or MemoryAccountStore()
    gateway = Gateway(settings, provider, accounts=store)
    pool = gateway.pool = AccountPool(
        settings, store, clock=lambda: EPOCH + anyio.current_time(), random=lambda: random
    )
    return PoolGateway(Application(gateway), pool, provider, store)


# What a stream begins with.
_BEGINNINGS = {CHAT: b'"role"', MESSAGES: b"event: message_start", RESPONSES: b"event: response.created"}


def check_one_beginning(client: str, received: FakeClient) -> None:
    """A stream has begun once, whatever came before its content."""
    if client == GEMINI:  # each chunk repeats the id, and there is none before an error
        assert len(set(re.findall(rb'"responseId": ?"[^"]*"', received.body))) <= 1
    else:
        assert received.body.count(_BEGINNINGS[client]) == 1


def check_text(client: str, received: FakeClient, text: str, *, stream: bool) -> None:
    """The client has received one correct response in its own protocol, with this text and nothing else."""
    assert received.status == 200, received.body
    assert received.finished
    assert [message["type"] for _, message in received.messages].count("http.response.start") == 1
    if stream:
        assert check_stream(client, received.body, include_usage=True) == []
        meaning = meaning_of_stream(client, received.body)
    else:
        assert check_whole(client, received.body) == []
        meaning = meaning_of_whole(client, received.body)
    assert meaning.text(Kind.TEXT) == text
    assert len(meaning.blocks) == 1
