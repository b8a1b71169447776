"""A day of a gateway in virtual time: clients with a budget and keys that are replaced, accounts that fail.

Only the upstream is a fake. What the process holds is looked at every hour, so that it shows what is left of requests,
cool-downs, budgets and configurations.
"""

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest.mock import patch

import anyio
import msgspec
from gateway.fakes import FakeClient, FakeUpstreams, Script, account_of, http_scope, key_of
from gateway.scripted import (
    CHAT,
    NOON,
    PATHS,
    PROTOCOL_NAMES,
    SECRET,
    STREAMS,
    WHOLE_RESPONSES,
    request_body,
    settings_with,
    whole,
)
from msgspec.structs import replace

from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.app import Application
from dragoman_server.gateway import Gateway
from dragoman_server.proxying.account_pool import AccountPool
from dragoman_server.settings import AccountSettings, ClientKey, Price, Settings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret

HOUR_S = 3600
HOURS = 24
# A key has a budget for so many hours of a day.
HOURS_OF_BUDGET = 6
# The limit of the account `a` is used up at the beginning of each hour, for so long.
LIMITED_S = 300
# After so many hours each budget, limit and reload has been seen.
WARM_HOURS = 8
# An hour leaves rows of usage: one for each key, account and model, of a few objects each. A request leaves none.
MAX_LEFT_AN_HOUR = 30
# A key is replaced after so many hours.
_ROTATION = 4
# Dollars of the scripts' seven tokens.
_DOLLARS = 7.0
_ADMIN_KEY = "x" * 40


class _Upstreams(FakeUpstreams):
    """Each hundredth response of the account `b` is an error, and `a` has its limit."""

    def __init__(self) -> None:
        super().__init__()
        self.responses: Counter[tuple[str, int]] = Counter()  # by account and status
        self._numbers = count(1)

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> Script:
        del self.sent[:-1]  # what a day sends is not what is looked at
        account = account_of(headers)
        left_s = LIMITED_S - anyio.current_time() % HOUR_S
        if account == "a" and left_s > 0:
            script = whole({"error": {"message": "slow down"}}, 429)
            script.headers.append(("retry-after", str(int(left_s) + 1)))
        elif account == "b" and next(self._numbers) % 100 == 0:
            script = whole({"error": {"message": "no"}}, 500)
        else:
            script = (STREAMS if json_of(content).get("stream") else WHOLE_RESPONSES)[CHAT]
        self.responses[account, script.status] += 1
        return script


@dataclass
class Day:
    """A day, noon to noon: a midnight is in the middle of it. Look at it after run().

    Attributes:
        every_s: The seconds from one request to the next.
        statuses: By key and hour, how often a request had which one; 0: its client has left.
        upstream: By account and status, the upstream's responses.
        usage: By hour, the requests that were counted for GET /admin/usage.
        objects, resident_mib: What was held each hour, from the first one on.
    """

    every_s: float
    statuses: dict[tuple[str, int], Counter[int]] = field(default_factory=dict)
    upstream: Counter[tuple[str, int]] = field(default_factory=Counter)
    usage: dict[str, int] = field(default_factory=dict)
    objects: list[int] = field(default_factory=list)
    resident_mib: list[float] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return sum(map(Counter.total, self.statuses.values()))

    @property
    def left_an_hour(self) -> float:
        """How many objects an hour has left, of those in which nothing happens for the first time."""
        return (self.objects[-1] - self.objects[WARM_HOURS]) / (HOURS - 1 - WARM_HOURS)

    def run(self, backend: str, options: dict[str, Any]) -> None:
        """options: with a clock that is virtual, see virtual_time."""
        anyio.run(self._pass, backend=backend, backend_options=options)

    async def _pass(self) -> None:
        upstreams = _Upstreams()
        with _wall_clock():
            app = Application(Gateway(self._settings(0), upstreams))
            async with app.lifespan():
                for hour in range(HOURS):
                    await self._hour(app, hour)
                headers = {"authorization": f"Bearer {_ADMIN_KEY}"}
                client = FakeClient()
                scope = http_scope("/admin/usage", "GET", headers, query_string=b"by=hour&since=2d&limit=99")
                await app(scope, client.receive, client.send)
        self.usage = {row["hour"]: row["requests"] for row in json_of(client.body)["rows"]}
        self.upstream = upstreams.responses
        assert upstreams.open_now == 0

    async def _hour(self, app: Application, hour: int) -> None:
        rotations, begins = divmod(hour, _ROTATION)
        if rotations and not begins:
            await app.reload(self._settings(rotations))
            assert await _status(app, 0, f"drk_blue{rotations - 1}") == 401
        keys = {"red": "drk_red", "blue": f"drk_blue{rotations}"}
        for number in range(int(HOUR_S / self.every_s)):
            await anyio.sleep_until(hour * HOUR_S + number * self.every_s)
            for name, key in keys.items():
                found = await _status(app, number, key)
                self.statuses.setdefault((name, hour), Counter())[found] += 1
        gc.collect()
        self.objects.append(len(gc.get_objects()))
        self.resident_mib.append(_resident_mib())

    def _settings(self, rotations: int) -> Settings:
        budget = HOURS_OF_BUDGET * HOUR_S / self.every_s * _DOLLARS
        made = settings_with(
            CHAT,
            upstream={"sticky": False},
            keys={"red": {"budget": budget, "budget_period": "day"}},
            prices=[Price(model="*", input=1e6, output=1e6)],
            admin_key=Secret(_ADMIN_KEY),
        )
        blue = ClientKey(name="blue", hash=hash_client_key(f"drk_blue{rotations}", SECRET))
        accounts = [AccountSettings(upstream="up", name=name, api_key=Secret(key_of(name))) for name in "abc"]
        return replace(made, accounts=tuple(accounts), client_keys=(*made.client_keys, blue))


async def _status(app: Application, number: int, key: str) -> int:
    """Send a request of some protocol, with a stream or without; each twenty-fifth client leaves immediately."""
    protocol = PROTOCOL_NAMES[number % 3]
    body = msgspec.json.encode(request_body(protocol, streams=number % 4 > 1))
    client = FakeClient(body, leaves_after=0 if number % 25 == 24 else None)
    await app(http_scope(PATHS[protocol], "POST", {"x-api-key": key}), client.receive, client.send)
    return client.status or 0


@contextmanager
def _wall_clock() -> Iterator[None]:
    """Let the time of day pass as the loop's clock does."""

    def now() -> float:
        return NOON + anyio.current_time()

    limits = ClientLimits.__init__
    with (
        patch.object(time, "time", now),
        patch.dict(AccountPool.__init__.__kwdefaults__, clock=now),
        patch.object(limits, "__defaults__", (now, *(limits.__defaults__ or ())[1:])),
    ):
        yield


def json_of(text: bytes) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(text)
    return value


def _resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
