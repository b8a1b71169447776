"""`dragoman top`: what it makes of events, its screens with keys pressed, and the command at a real gateway."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import anyio
import canaries
import pytest
import rows
from command.cli import run
from command.process import DEADLINE_S, Server
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.cli.top import command
from dragoman_server.cli.top.follow import follow_accounts, follow_feed
from dragoman_server.cli.top.state import MAX_ATTEMPTS, MAX_FAILURES, RATES_S, TopState
from dragoman_server.cli.top.tables import (
    ACCOUNTS,
    REQUESTS,
    cell,
    chosen,
    count_text,
    event_line,
    fit,
    in_order,
    rate_lines,
    request_lines,
    seconds_text,
    sparkline,
)
from dragoman_server.hosts import UpstreamCall
from dragoman_server.http.admin.events import HEARTBEAT_S
from dragoman_server.platform.extras import install_command
from dragoman_server.settings import ServerSettings
from dragoman_server.upstream.client import UpstreamClient
from dragoman_server.upstream.errors import UpstreamUnreachable
from dragoman_server.upstream.transport import UpstreamTimeouts

# textual runs on asyncio, and its timers on the real clock.
pytestmark = [pytest.mark.anyio, pytest.mark.backends("real-asyncio")]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


# What is known.


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def receive(state: TopState, line: str) -> None:
    """Pass on an event: its type without `request.`, the id, and members."""
    kind, id, *members = re.findall(r'(?:[^\s"]|"[^"]*")+', line)
    data = {name: value_of(value) for name, value in (each.split("=", 1) for each in members)}
    of_request = id != "-"
    state.receive(f"request.{kind}" if of_request else kind, data | ({"request": id} if of_request else {}))


def shown(state: TopState, view: str, width: int, now: float) -> Iterator[str]:
    if view == "head":
        yield f"workers={sorted(state.workers)} lost={state.lost} open={state.open}"
    elif view == "rates":
        state.tick(now)
        yield from (line.rstrip() for line in rate_lines(state, now, width, blocks=True) if line.strip())
    elif view.startswith("look-"):
        request = state.find(view.removeprefix("look-"))
        assert request is not None
        yield from "\n".join(request_lines(request, now)).split("\n")
    else:
        columns: Any = REQUESTS if view == "requests" else ACCOUNTS
        found: Any = state.requests() if view == "requests" else state.accounts()
        for row in in_order(found, columns[0], descending=False, now=now):
            yield " | ".join([cell(each, row, now) for each, _ in fit(columns, width)]).rstrip()


def output_of(lines: list[str]) -> list[str]:
    state, out = TopState(0, max_requests=3), list[str]()
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "show":
            view, width, now = rest.split()
            out += shown(state, view, int(width), float(now))
        elif kind == "accounts":
            state.receive_accounts(json.loads(rest))
        else:
            receive(state, line)
    return out


def test_the_state() -> None:
    rows.check(Path(__file__).with_name("top.txt"), output_of)


def test_a_fast_feed_takes_bounded_memory() -> None:
    state = TopState(0)
    for number in range(MAX_FAILURES + 50):
        for attempt in range(MAX_ATTEMPTS + 5 if number == 7 else 1):
            failed = {"number": attempt, "account": f"up/{number}", "kind": "server", "cause": "busy"}
            state.receive("request.attempt_failed", {"request": f"{number}", "at": number, **failed})
        if number == 7:
            assert [*state.find("7").attempts] == [*range(5, MAX_ATTEMPTS + 5)]
    assert (len(state.requests()), len(state._failures), len(state._seconds)) == (1000, 1000, RATES_S + 1)


# How it is written.


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (seconds_text, 0.004, "0.00s"),
        (seconds_text, 59.9, "59.9s"),
        (seconds_text, 61, "1m01s"),
        (seconds_text, 119.7, "2m00s"),
        (seconds_text, 3725, "1h02m"),
        (count_text, 999, "999"),
        (count_text, 999.6, "1.0k"),
        (count_text, 99_960, "100k"),
        (count_text, 1_500_000, "1.5M"),
        (count_text, 2e15, "2000T"),
    ],
)
def test_numbers(text: Callable[[float], str], value: float, expected: str) -> None:
    assert text(value) == expected


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 3, "   "),
        ([0, 0], 3, "   "),
        ([1, 8], 4, "  ▁█"),
        ([0, 0.001, 8], 3, " ▁█"),
        ([9, 0, 4, 0, 7], 3, "█▄▇"),  # groups of two from the end: 9, 0 4, 0 7
    ],
)
def test_sparklines(values: list[float], width: int, expected: str) -> None:
    assert sparkline(values, width, blocks=True) == expected
    assert sparkline(values, width, blocks=False) == expected.translate(str.maketrans("▁▄▇█", ".=#@"))


def test_columns_fill_the_line_and_the_important_ones_stay() -> None:
    for width in (40, 80, 120, 200):
        columns = fit(REQUESTS, width)
        assert sum(each for _, each in columns) + len(columns) - 1 == max(width, 48)
        assert {"time", "model > upstream", "outcome", "took"} <= {each.title for each, _ in columns}
    assert [each for each, _ in fit(REQUESTS, 200)] == list(REQUESTS)


def test_words_and_order() -> None:
    state = TopState(0)
    for line in (
        "ended a at=1 model=Big outcome=failed cost_usd=2",
        "ended b at=2 model=big outcome=completed",
        "ended c at=3 model=tiny outcome=failed cost_usd=3",
    ):
        receive(state, line)
    for words, found in (("", "abc"), ("bIg", "ab"), ("big fail", "a"), ("huge", "")):
        assert "".join([row.id for row in chosen(state.requests(), REQUESTS, words, 9)]) == found
    (cost,) = [each for each in REQUESTS if each.title == "cost $"]
    for descending, order in ((True, "cab"), (False, "acb")):
        sorted_rows = in_order(state.requests(), cost, descending=descending, now=9)
        assert "".join([row.id for row in sorted_rows]) == order


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    data = {"at": 1, "request": "a", "cause": "x\r\n\u202e\x1b[2J", "status": None}
    found = event_line("request.attempt_failed", data)
    assert found == r"00:00:01 request.attempt_failed request=a cause=x\r\n\u202e\x1b[2J"


# The screens.


EVENTS = (
    "hello - version=0.1.0 workers=[7] resumed=null",
    "begun a at=1 worker=7 client_key=[red]ci",
    "planned a at=1 model=[bold]evil[/bold] upstream=up upstream_model=m stream=true",
    "ended b at=9 model=small upstream=up upstream_model=a-name-that-does-not-fit outcome=failed status=500",
    "ended c at=12 model=日本 upstream=up upstream_model=s outcome=completed status=200",
)


class Screens:
    """The application in a terminal of this size, whose clock stands at 20."""

    def __init__(self, size: tuple[int, int] = (80, 24), *, blocks: bool = True) -> None:
        pytest.importorskip("textual", reason="the extra `top` is not installed")
        from dragoman_server.cli.top.app import TopApp

        self.state = TopState(0)
        self.now = 20.0
        for line in EVENTS:
            receive(self.state, line)
        self.app = TopApp(self.state, lambda: self.now, blocks=blocks)
        self._running = self.app.run_test(size=size)

    async def __aenter__(self) -> "Screens":
        self._pilot = await self._running.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._running.__aexit__(*error)

    async def press(self, *keys: str) -> list[str]:
        """Press keys, and return the lines of the terminal."""
        await self._pilot.press(*keys)
        return await self.lines()

    async def lines(self) -> list[str]:
        await self._pilot.pause(0.25)  # more than the screens take to show what is new
        for _ in range(100):  # the footer is made after the rest, on a busy machine later
            found = [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]
            if found[-1]:
                break
            await self._pilot.pause(0.05)
        return found


def rows_of(lines: list[str]) -> list[str]:
    """Return the models of the rows in a table."""
    return [each.split()[1] for each in lines[2:] if re.match(r"\d\d:\d\d", each)]


EVIL = "[bold]evil[/bold]"


async def test_requests_are_sorted_and_found_and_names_are_no_markup() -> None:
    async with Screens() as screens:
        lines = await screens.lines()
        assert lines[0] == "requests  open: 1  dragoman 0.1.0  workers: 1"
        assert rows_of(lines) == ["日本", "small", EVIL]
        assert max(map(len, lines)) <= 80
        assert lines[-1].split()[-2:] == ["q", "Quit"]
        assert lines[3].index("failed") == lines[1].index("outcome"), "a long name is cut"
        assert rows_of(await screens.press("r")) == [EVIL, "small", "日本"]
        assert rows_of(await screens.press("s")) == [EVIL, "small", "日本"], "texts from a to z"
        assert rows_of(await screens.press("s")) == ["small", "日本", EVIL], "the highest number first"
        assert rows_of(await screens.press("S")) == [EVIL, "small", "日本"]
        assert rows_of(await screens.press("slash", *"small")) == ["small"]
        assert rows_of(await screens.press("enter")) == ["small"]
        assert "with 'small'" in (await screens.lines())[0]
        assert len(rows_of(await screens.press("escape"))) == 3


async def test_the_chosen_request_stays_chosen_and_can_be_looked_into() -> None:
    async with Screens() as screens:
        await screens.press("down", "down")
        receive(screens.state, "begun d at=13")
        lines = await screens.press("enter")
        assert "client_key         [red]ci" in lines
        assert "outcome            open" in lines
        receive(screens.state, "attempt_failed a at=14 number=1 account=up/a kind=server cause=[b]busy")
        assert "  1: account=up/a kind=server cause=[b]busy" in await screens.lines()
        assert len(rows_of(await screens.press("escape"))) == 4
        # Measured also while another screen hid the table.
        screens.now = 21
        await screens.press("question_mark")
        assert screens.state.series("streams", 21)[-1] == 1


async def test_a_pause_holds_the_screen_and_loses_nothing() -> None:
    async with Screens() as screens:
        await screens.press("p")
        receive(screens.state, "begun d at=13 method=GET path=/late")
        lines = await screens.lines()
        assert (len(rows_of(lines)), "PAUSED" in lines[0]) == (3, True)
        assert len(rows_of(await screens.press("p"))) == 4


async def test_accounts_and_rates_and_a_gateway_that_is_away() -> None:
    async with Screens((200, 60)) as screens:
        account = {"id": "up/a", "state": "cooling", "cause": "[i]x", "cools_until": "1970-01-01T00:00:50Z"}
        screens.state.receive_accounts([account])
        assert not screens.app.shows_accounts()
        lines = await screens.press("2")
        assert screens.app.shows_accounts()
        assert "up/a" in lines[2]
        assert "30.0s" in lines[2]
        assert "[i]x" in lines[2]
        assert "up/a" not in "".join(await screens.press("slash", *"up/b"))
        await screens.press("escape")
        lines = await screens.press("tab")
        assert "requests/s" in "".join(lines)
        assert "█" in "".join(lines)
        screens.state.disconnected("no gateway\x1b")
        assert (await screens.lines())[0] == r"rates  no connection: no gateway\x1b"
        assert len(rows_of(await screens.press("tab"))) == 3
        await screens.press("q")
    assert screens.app.return_code == 0


async def test_five_thousand_events_a_second_leave_it_usable() -> None:
    async with Screens((80, 9), blocks=False) as screens:
        began = time.thread_time()
        for number in range(5000):
            receive(screens.state, f"begun {number} at={number} method=GET path=/{number}")
        assert time.thread_time() - began < 2
        await screens.lines()
        drawn = time.thread_time()
        table = await screens.press("end")
        assert "/4000" in table[-2]
        page = await screens.press("enter")
        assert "path               /4000" in page
        assert "".join([*table, *page]).isascii()
        assert time.thread_time() - drawn < 2


# The gateway.


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_a_gateway_that_is_away_is_asked_again_and_for_accounts_only_if_they_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, reasons, wanted = list[tuple[str, float]](), list[str](), [False]

    def refuse(self: UpstreamClient, call: UpstreamCall, *, timeouts: UpstreamTimeouts) -> None:
        assert timeouts.read_s is not None
        calls.append((call.url.rpartition("/")[2], timeouts.read_s))
        raise UpstreamUnreachable("gone")

    monkeypatch.setattr(UpstreamClient, "open", refuse)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_feed, ServerSettings(), None, reasons.append)
        tasks.start_soon(follow_accounts, ServerSettings(), None, lambda: wanted[0])
        await anyio.sleep(2.5)
        assert [name for name, _ in calls] == ["events"] * 3
        assert min(read_s for _, read_s in calls) > HEARTBEAT_S
        assert reasons == ["no gateway responds: gone"] * 3
        wanted[0] = True
        await anyio.sleep(3)
        assert [name for name, _ in calls].count("accounts") == 2
        tasks.cancel_scope.cancel()


# The command.


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    monkeypatch.setattr(command, "_on_terminal", lambda: True)
    result = run("top")
    assert result.exit_code == 1
    reason = f"dragoman: top needs an extra: {install_command('top')}; --plain does without"
    assert result.stderr.splitlines()[-1] == reason  # behind the note that there is no configuration


@pytest.mark.parametrize("environ", [{"LANG": "de_DE.UTF-8"}, {"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, {}])
def test_only_utf8_has_blocks(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert command._has_blocks() is (environ == {"LANG": "de_DE.UTF-8"})


ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
UPSTREAM = '[[upstreams]]\nname = "up"\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"\n'


class Top:
    """A `dragoman top` of this configuration on a terminal, or with pipes and --plain."""

    def __init__(self, config: Path, *, plain: bool) -> None:
        if plain:
            ours = theirs = None
        else:
            ours, theirs = pty.openpty()
            self.terminal = termios.tcgetattr(theirs)
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dragoman_server", "top", "--config", config],
            stdin=subprocess.DEVNULL if plain else theirs,
            stdout=subprocess.PIPE if plain else theirs,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"},
            start_new_session=True,
        )
        if theirs is not None:
            os.close(theirs)
        self._to = ours
        self._from = ours if self.process.stdout is None else self.process.stdout.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._to is not None:
            os.close(self._to)

    def wait_for(self, text: str) -> None:
        """Read until this text comes, and drop what was read."""
        assert self._from is not None
        deadline = time.monotonic() + DEADLINE_S
        while text.encode() not in self.output:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.output
            data = os.read(self._from, 65536)
            canaries.look("output", data.decode("utf-8", "replace"))
            assert data, self.output
            self.output += data
        self.output = self.output.partition(text.encode())[2]

    def press(self, key: bytes) -> None:
        assert self._to is not None
        os.write(self._to, key)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = tmp_path / "top.toml"
    canaries.add([ADMIN])
    path.write_text(f'[server]\nport = {port}\nadmin_key = "{ADMIN}"\n' + UPSTREAM)
    path.chmod(0o600)
    return path


class Gateway(Server):
    """The real command, at the port of its configuration."""

    COMMAND = ("-m", "dragoman_server", "serve")

    def chat(self, model: str) -> None:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        self.request("POST", "/v1/chat/completions", body)


@pytest.mark.process
def test_it_follows_a_gateway_through_a_reload_and_a_restart(config: Path) -> None:
    arguments = "--config", str(config)
    with Top(config, plain=True) as top:
        top.wait_for("dragoman: no gateway responds")
        assert top.process.wait(DEADLINE_S) == 1
    without_key = config.with_name("without_key.toml")
    without_key.write_text(config.read_text().replace("admin_key =", "# admin_key ="))
    with Gateway(*arguments) as gateway:
        gateway.ready()
        with Top(without_key, plain=True) as top:
            top.wait_for("this configuration has no server.admin_key")
        with Top(config, plain=True) as top:
            top.wait_for("hello version=")
            gateway.chat("sim/echo")
            top.wait_for("request.ended")
            gateway.signal(signal.SIGHUP)
            top.wait_for("end reason=reloaded")
            gateway.chat("sim/nope")
            top.wait_for("resumed=True")
            top.wait_for("model=nope")
            gateway.signal(signal.SIGTERM)
            assert gateway.wait() == 0
            top.wait_for("no gateway responds")
            with Gateway(*arguments) as again:
                again.ready()
                top.wait_for("hello version=")
                again.chat("sim/echo")
                top.wait_for("request.ended")


@pytest.mark.process
@pytest.mark.parametrize("ends_by", ["q", "SIGTERM"])
def test_on_a_terminal(config: Path, ends_by: str) -> None:
    pytest.importorskip("textual", reason="the extra `top` is not installed")
    with Gateway("--config", str(config)) as gateway:
        gateway.ready()
        with Top(config, plain=False) as top:
            top.wait_for("workers: 1")
            gateway.chat("sim/echo")
            top.wait_for("sim/echo")
            top.press(b"2")
            top.wait_for("up/default")
            if ends_by == "q":
                top.press(b"q")
            else:
                top.process.terminate()
            assert top.process.wait(DEADLINE_S) == (0 if ends_by == "q" else -signal.SIGTERM)
            assert top._to is not None
            assert termios.tcgetattr(top._to) == top.terminal
            top.wait_for("\x1b[?1049l")  # from the alternate screen back to the one before
