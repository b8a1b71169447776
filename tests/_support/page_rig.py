"""A gateway whose upstream does what the text of a request says, for tests of the page at /ui."""

import http.client
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from command.process import DEADLINE_S
from edge import (
    CHAT_PATH,
    CHAT_STREAM,
    CHAT_WHOLE,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Upstream,
    chat,
    chunk,
    whole,
)

ADMIN_KEY = "0123456789abcdef" * 2
# Where pictures of the views go, none if it is not set.
SCREENSHOTS = os.environ.get("DRAGOMAN_SCREENSHOTS")

HOUR = 3600
# Each connection has one request, and the gateway has to know that, or its next request may get a closed connection.
_CLOSE = "connection: close\r\n"
XSS = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"

_SERVER = f"""
admin_key = "{ADMIN_KEY}"
secret = "{ADMIN_KEY}-of-the-gateway"
record = "recordings"
default_model = "up/m"
"""
_MORE = """
[[accounts]]
upstream = "up"
name = "first"
api_key = "key-of-the-first-account"

[[accounts]]
upstream = "up"
name = "second"
api_key = "key-of-the-second-account"

[[prices]]
model = "m"
input = 3.0
output = 15.0
cached_input = 0.3
"""


class Rig:
    """The gateway and its upstream. The text of a request says what the upstream does with it.

    Attributes:
        release: Ends the streams that are held open.
    """

    def __init__(self, directory: Path) -> None:
        self.release = threading.Event()
        self._refused = False
        self.upstream = Upstream(self._respond)
        record = directory / "recordings"
        server = _SERVER.replace('"recordings"', f'"{record}"')
        self.gateway = EdgeGateway(directory, self.upstream, backend="asyncio", server=server, more=_MORE)

    def _respond(self, conversation: Conversation) -> None:
        request = conversation.read()
        if request is None:
            return
        if b"cool down" in request and not self._refused:
            self._refused = True
            body = {"error": {"message": "slow down", "type": "rate_limit"}}
            conversation.send(whole(body, "429 Too Many Requests", f"retry-after: 90\r\n{_CLOSE}"))
            return
        if b"be wrong" in request:
            message = f"wrong {XSS}" if b"<script>" in request else "max_tokens is wrong: 99999 is too much"
            conversation.send(whole({"error": {"message": message}}, "400 Bad Request", _CLOSE))
        elif b"say nothing" in request:
            self.release.wait(DEADLINE_S)
            conversation.send(STREAM_HEAD + CHAT_STREAM)
        elif b"hold" in request:
            conversation.send(STREAM_HEAD)
            number = 0
            while not self.release.wait(0.1):
                number += 1
                conversation.send(chunk(f" word {number}"))
            conversation.send(chunk(finish_reason="stop") + b"data: [DONE]\n\n")
        else:
            usage = {
                "prompt_tokens": 1200,
                "completion_tokens": 64,
                "total_tokens": 1264,
                "prompt_tokens_details": {"cached_tokens": 900},
            }
            conversation.send(whole({**CHAT_WHOLE, "usage": usage}, headers=_CLOSE))

    def post(self, text: str, path: str = CHAT_PATH, **more: Any) -> tuple[int, str]:
        """Send a request. Return the status and the id. "cool down": its first attempt gets a 429."""
        self._refused = False
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=DEADLINE_S)
        body = {**chat(**{"stream": False, **more}), "messages": [{"role": "user", "content": text}]}
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            return response.status, response.headers["dragoman-request-id"]
        finally:
            connection.close()

    def admin(self, method: str, path: str) -> None:
        """Send a request of the operator."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, headers={"authorization": f"Bearer {ADMIN_KEY}"})
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, body
        finally:
            connection.close()

    def reset(self) -> None:
        """Have both accounts ready again."""
        for name in ("first", "second"):
            self.admin("POST", f"/admin/accounts/up/{name}/reset")

    def hold(self, text: str = "hold") -> threading.Thread:
        """Begin a stream that goes on until release is set."""
        self.release.clear()
        thread = threading.Thread(target=self.post, args=(text,), kwargs={"stream": True}, daemon=True)
        thread.start()
        return thread

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}/ui/"


def usage_rows(unit: str) -> list[dict[str, object]]:
    """Rows of two days as GET /admin/usage has them."""
    now = int(time.time() // HOUR)
    rows: list[dict[str, object]] = []
    for ago in range(48):
        busy = 40 + 35 * ((ago * 7) % 11) // 3
        row: dict[str, object] = {
            "hour": time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime((now - ago) * HOUR)),
            "requests": busy, "errors": ago % 9 // 4, "unpriced": 0, "input_tokens": busy * 9000,
            "output_tokens": busy * 420, "cached_tokens": busy * 6900, "cache_write_tokens": 0,
            "reasoning_tokens": 0, "cost_usd": busy * 0.013,
            "first_byte": [0, 2, busy // 2, busy // 3, 3, ago % 3, 0, 0, 0, 0, 0, 0, 0, 0],
        }  # fmt: skip
        rows.append(row)
    if unit == "hour":
        return rows
    models = [("claude-sonnet-4-5", 0), ("gpt-5.1", 1), ("gemini-3-pro", 2)]
    return [
        {**rows[n], unit: name, "requests": 812 - 270 * n, "cost_usd": 21.4 / (n + 1)} for name, n in models
    ]


def usage_script(*, missing: bool = False) -> str:
    """A script with which the page gets these rows from /admin/usage, or a 404 if they are missing, and a key."""
    answers = {}
    for unit in ("hour", "model"):
        rows = usage_rows(unit)
        total = {
            **rows[0],
            "requests": 2212,
            "errors": 31,
            "input_tokens": 19_900_000,
            "cached_tokens": 14_100_000,
        }
        now = int(time.time() // HOUR)
        since, until = (
            time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(at * HOUR)) for at in (now - 47, now + 1)
        )
        bounds = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]
        answers[unit] = {
            "since": since, "until": until, "by": [unit], "first_byte_bounds_s": bounds, "rows": rows,
            "total": {**total, "cost_usd": 39.7}, "truncated": False,
        }  # fmt: skip
    budget = {"budget": 5.0, "budget_period": "month", "budget_spent": 4.5}
    key = {
        "name": XSS,
        "group": "team",
        "state": "active",
        "requests": 3,
        "tokens": 12,
        "cost_usd": 4.5,
        **budget,
    }
    keys = {"keys": [key], "groups": [{"name": "team", "models": ["m"], **budget, "budget_spent": 6.0}]}
    return f"""
    const answers = {json.dumps(answers)}, keys = {json.dumps(keys)}, original = window.fetch;
    window.fetch = (url, options) => {{
      if (String(url).endsWith('/admin/keys')) return Promise.resolve(Response.json(keys));
      const found = /[/]admin[/]usage[?]by=(\\w+)/.exec(String(url));
      if (!found) return original(url, options);
      return Promise.resolve(Response.json(answers[found[1]] ?? {{}}, {{status: {404 if missing else 200}}}));
    }};"""
