"""The page at /ui in a real Chromium, in front of a gateway whose upstream does what the tests need.

After each test the console of the page has nothing: no error, no exception, no violation of its policy.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from devtools import Chromium, Page
from edge import MESSAGES_PATH
from page_rig import ADMIN_KEY, XSS, Rig, usage_script

pytestmark = pytest.mark.process

OpenPage = Callable[..., Page]
VIEWS = ("live", "recordings", "upstreams", "usage", "playground", "configuration")


@pytest.fixture(autouse=True)
def _ready(rig: Rig) -> None:
    rig.reset()


@contextmanager
def streaming(rig: Rig, text: str = "hold") -> Iterator[None]:
    """Have a stream open inside of this block."""
    thread = rig.hold(text)
    try:
        yield
    finally:
        rig.release.set()
        thread.join()


def cell(name: str, row: str = ".rows .row") -> str:
    """A script for the text of a cell of the first such row."""
    return f"document.querySelector('{row} .{name}')?.innerText"


def rows_shown(page: Page) -> int:
    return int(page.run("document.querySelectorAll('.rows .row').length"))


# Live requests.


def test_a_row_is_there_while_its_stream_is_open_and_its_counters_move(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    with streaming(rig):
        assert page.wait_for(cell("status", ".row.open")) in ("open", "waits", "streams")
        first = page.wait_for(f"/\\d+ ev/.exec({cell('out', '.row.open')})?.[0]")
        duration = page.run(cell("duration", ".row.open"))
        page.wait_for(f"parseInt({cell('out', '.row.open')}) > parseInt({json.dumps(first)})")
        page.wait_for(f"{cell('duration', '.row.open')} !== {json.dumps(duration)}")
        assert "1 open" in page.run("document.querySelector('.summary').innerText")
    page.wait_for(f"{cell('status', '.row.ok')} === '200'")
    assert rows_shown(page) == 1


def test_the_duration_of_a_request_moves_while_nothing_comes(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    with streaming(rig, "say nothing"):
        page.wait_for(f"{cell('status', '.row.open')} === 'waits'")
        time.sleep(0.5)  # what the last event changed is drawn
        duration = page.run(cell("duration", ".row.open"))
        # The client gets a heartbeat after 10 seconds.
        page.wait_for(f"{cell('duration', '.row.open')} !== {json.dumps(duration)}", within_s=5)


def test_a_row_has_what_its_request_used(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    rig.post("Hello")
    page.wait_for(f"{cell('status')} === '200'")
    page.wait_for(cell("cost") + ".startsWith('$')")
    found = {
        name: page.run(cell(name)) for name in ("model", "target", "in", "out", "cached", "cost", "lost")
    }
    assert found == {
        "model": "up/m",
        "target": "up/m",
        "in": "1,200",
        "out": "64",
        "cached": "75%",
        "cost": "$0.00213",
        "lost": "\N{EN DASH}",
    }


def test_requests_that_ended_before_the_page_was_open_are_there(rig: Rig, open_page: OpenPage) -> None:
    id = rig.post("Hello")[1]
    page = open_page(kept=True)
    page.wait_for(f"{cell('status')} === '200'")
    page.type("input[type=search]", id)
    page.wait_for("document.querySelectorAll('.rows .row').length === 1")
    assert page.run(cell("in")) == "1,200"


def test_filters_and_search_choose_rows(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    rig.post("Hello")
    rig.post("Hello")  # the same conversation, as below
    rig.post("be wrong")
    rig.post("Hello", MESSAGES_PATH, container="c", max_tokens=9)
    page.wait_for("document.querySelectorAll('.rows .row').length === 4")

    def choose(label: str, value: str) -> None:
        page.run(
            f"{{const field = document.querySelector('[aria-label=\"{label}\"]'); field.value = '{value}';"
            "field.dispatchEvent(new Event('change', {bubbles: true}));}"
        )

    for value, count in (("errors", 1), ("losses", 1), ("open", 0), ("all", 4)):
        choose("Show", value)
        page.wait_for(f"document.querySelectorAll('.rows .row').length === {count}")
    page.type("input[type=search]", "WRONG up/m")
    page.wait_for("document.querySelectorAll('.rows .row').length === 1")
    assert "1 of 4 requests" in page.text()
    page.type("input[type=search]", "no such text")
    page.wait_for("document.querySelector('.empty')")
    page.run("document.querySelector('input[type=search]').select()")
    page.press("Backspace")
    page.wait_for("document.querySelectorAll('.rows .row').length === 4")
    page.click(".filters label:first-of-type input")
    page.run("location.hash = '#/upstreams'")
    page.wait_for("document.querySelector('.pill')")
    page.run("location.hash = '#/live'")  # it is as it was
    page.wait_for("/session .* 3 requests/.test(document.querySelector('.rows').innerText)")


def test_the_keyboard_chooses_opens_and_closes(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    ids = [rig.post("Hello")[1] for _ in range(3)]
    page.wait_for("document.querySelectorAll('.rows .row').length === 3")
    page.run("document.querySelector('.grid').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.press(key)
    page.wait_for(f"document.querySelector('.grid').getAttribute('aria-activedescendant') === 'row-{ids[1]}'")
    assert page.run("document.querySelector('[aria-selected=true]').id") == f"row-{ids[1]}"
    page.press("Enter")
    page.wait_for(f"location.hash === '#/requests/{ids[1]}'")
    page.wait_for(f"document.querySelector('h1').innerText.includes('{ids[1]}')")
    assert page.run("document.activeElement.id") == "main"
    page.press("Escape")
    page.wait_for("document.activeElement === document.querySelector('.grid')")
    assert page.run("document.querySelector('[aria-selected=true]').id") == f"row-{ids[1]}"


FAKE_FEED = Path(__file__).with_name("fake_feed.js").read_text("utf-8")

# Seconds of CPU time, five times what a step takes: a slow machine has them, and what draws all rows takes more.
MAX_STEP_S = 0.1
STEPS = 60

SCROLL = """new Promise((resolve) => {
      const grid = document.querySelector('.grid');
      let steps = 0;
      const step = () => {
        grid.scrollTop = ((steps * 977) % 5000) * 28;
        steps += 1;
        if (steps < STEPS) requestAnimationFrame(step);
        else resolve();
      };
      step();
    })""".replace("STEPS", str(STEPS))


def test_five_thousand_rows_do_not_stutter(rig: Rig, open_page: OpenPage) -> None:
    page = open_page(script=FAKE_FEED)
    page.wait_for("document.querySelector('.summary').innerText.startsWith('5,000 requests')")
    assert page.run("document.querySelector('.grid').getAttribute('aria-rowcount')") == "5001"
    page.run("document.querySelector('.grid').scrollTop = 1e9")
    page.wait_for("document.querySelector('.rows').innerText.includes('model-0')")
    page.wait_for(
        "[...document.querySelectorAll('.rows .row')].some((row) => row.id === 'row-' + '0'.repeat(32))"
    )
    assert rows_shown(page) < 100
    started = page.cpu_s()
    page.run(SCROLL)
    scrolled = page.cpu_s()
    page.type("input[type=search]", "model-3")
    page.wait_for("document.querySelector('.summary').innerText.startsWith('714 of 5,000')")
    page.type("input[type=search]", "model")
    page.wait_for("document.querySelector('.summary').innerText.startsWith('5,000 requests')")
    assert scrolled - started <= STEPS * MAX_STEP_S
    assert page.cpu_s() - scrolled <= 5 * MAX_STEP_S


def test_what_is_read_stays_in_place_while_rows_come(rig: Rig, open_page: OpenPage) -> None:
    page = open_page(height=300)
    for _ in range(12):
        rig.post("Hello")
    page.wait_for("document.querySelector('.grid').getAttribute('aria-rowcount') === '13'")
    place = """(() => {
      const grid = document.querySelector('.grid'), row = document.getElementById(ID);
      return row && Math.round(row.getBoundingClientRect().top - grid.getBoundingClientRect().top);
    })()"""
    page.run("document.querySelector('.grid').scrollTop = 84")
    id = page.run("document.querySelectorAll('.rows .row')[4].id")
    before = page.run(place.replace("ID", f"'{id}'"))
    for _ in range(3):
        rig.post("Hello")
    page.wait_for("document.querySelector('.grid').getAttribute('aria-rowcount') === '16'")
    page.wait_for("document.querySelector('.grid').scrollTop === 168")
    assert page.run(place.replace("ID", f"'{id}'")) == before


def test_the_feed_comes_back_after_a_reload_and_loses_nothing(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    with streaming(rig):
        page.wait_for(cell("status", ".row.open"))
        rig.admin("POST", "/admin/reload")
        page.wait_for("document.querySelector('.feed.waiting, .feed.connecting')")
        rig.post("Hello")
        page.wait_for("document.querySelector('.feed.open')")
        page.wait_for("document.querySelectorAll('.row.ok').length === 1")
        assert page.run("document.querySelectorAll('.row.open').length") == 1
    page.wait_for("document.querySelectorAll('.row.ok').length === 2")


# One request.


def test_attempts_losses_and_both_wires_of_a_request(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    rig.post("Hello")
    _, id = rig.post("cool down", MESSAGES_PATH, container="c", max_tokens=9)
    page.wait_for(f"document.getElementById('row-{id}')?.querySelector('.tries')")
    page.run(f"location.hash = '#/requests/{id}'")
    page.wait_for(
        "document.querySelector('.waterfall tbody tr.failed .result').innerText.includes('slow down')"
    )
    assert page.run("document.querySelector('.waterfall tbody tr:last-child').className") == "succeeded"
    accounts = page.run(
        "[...document.querySelectorAll('.waterfall td:nth-child(2)')].map((each) => each.innerText)"
    )
    assert {accounts[0], accounts[-1]} == {"up/first", "up/second"}
    # At its place in the body that the client sent, which the recording has.
    lossy = page.wait_for("document.querySelector('.json .lossy')?.innerText")
    assert '"container": "c"' in lossy
    assert "dropped" in lossy
    page.wait_for("document.querySelector('.upstream-cell .piece > pre')")
    wires = page.run("document.querySelector('.wires').innerText")
    for text in (
        "POST /v1/messages",
        "/v1/chat/completions",
        "status 429",
        "slow down",
        "attempt 1 failed: 429",
        "ended",
    ):
        assert text in wires
    assert page.run("document.querySelector('.curl').innerText").startswith("curl 'http://127.0.0.1:")
    assert '"authorization: Bearer $DRAGOMAN_KEY"' in page.run("document.querySelector('.curl').innerText")
    page.run("[...document.querySelectorAll('button')].find((each) => each.innerText === 'Replay').click()")
    page.wait_for("/as it was recorded/.test(document.querySelector('.answer')?.innerText)")


def test_both_wires_are_shown_while_a_stream_is_open(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    page.click(".filters label:last-of-type input")
    time.sleep(0.5)  # until the gateway has this reader, too
    with streaming(rig):
        page.click(".row.open")
        page.wait_for("document.querySelector('.upstream-cell .piece > pre')?.innerText.includes('hold')")
        count = page.wait_for("document.querySelectorAll('.client-cell .piece').length")
        page.wait_for(f"document.querySelectorAll('.client-cell .piece').length > {count} + 3")
        assert "word 1" in page.run("document.querySelector('.wires').innerText")


def test_an_error_is_shown_and_what_is_sent_is_text_everywhere(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    status, id = rig.post(f"be wrong {XSS}", model=XSS)
    assert status == 400
    page.wait_for(cell("status", ".row.error") + " === '400 failed'")
    assert XSS in page.run(cell("model"))
    page.click(".row.error")
    page.wait_for("document.querySelector('.alert')?.innerText.includes('wrong <img')")
    page.wait_for("document.querySelector('.json')?.innerText.includes('be wrong <img')")
    for view in ("upstreams", "recordings"):
        page.run(f"location.hash = '#/{view}'")
        page.wait_for("document.querySelector('main').innerText.includes('<img src=x')")
    page.run(f"location.hash = '#/requests/{id}<img src=x>'")
    page.wait_for("document.querySelector('h1').innerText.includes('<img src=x>')")
    expected = ["Dragoman", 0]
    assert page.run("[document.title, document.querySelectorAll('main img, main script').length]") == expected


# Upstreams, recordings, usage, the configuration.


def test_a_cooldown_counts_down_and_buttons_change_accounts(rig: Rig, open_page: OpenPage) -> None:
    page = open_page("upstreams")
    page.wait_for("document.querySelectorAll('.pill.ready').length === 2")
    rig.post("cool down")
    page.wait_for("document.querySelector('.pill.cooling')")
    clock = "document.querySelector('tr:has(.cooling) .clock').innerText"
    before = page.run(clock)
    assert re.fullmatch(r"1:\d\d", before)
    # By itself, and not because the gateway says so.
    page.run("(window.asks = window.fetch, window.fetch = () => new Promise(() => {}), 0)")
    page.wait_for(f"{clock} < '{before}'")
    page.run("(window.fetch = window.asks, 0)")
    row = "document.querySelector('tr:has(.cooling)').innerText"
    assert "rate_limit (429)" in page.run(row)
    assert "slow down" in page.run(row)
    page.click("tr:has(.cooling) button[aria-label^=reset]")
    page.wait_for("document.querySelectorAll('.pill.ready').length === 2")
    page.click("button[aria-label='disable up/first']")
    page.wait_for("document.querySelector('.actions').innerText.includes('Disable it?')")
    page.click(".actions button")
    page.wait_for("document.querySelector('.pill.disabled')")
    page.click("button[aria-label='enable up/first']")
    page.wait_for("document.querySelectorAll('.pill.ready').length === 2")


def test_recordings_are_found_by_a_text_in_them(rig: Rig, open_page: OpenPage) -> None:
    rig.post("a certain needle")
    rig.post("hay")
    page = open_page("recordings")
    page.wait_for("document.querySelectorAll('tbody tr').length > 1")
    page.type("input[type=search]", "certain NEEDLE")
    page.click("form button")
    page.wait_for("document.querySelectorAll('tbody tr').length === 1")
    page.click("tbody a")
    page.wait_for("document.querySelector('.json')?.innerText.includes('a certain needle')")
    assert "up/m" in page.run("document.querySelector('.waterfall').innerText")


def test_a_recording_that_the_page_has_not_seen_live_has_accounts_and_all_losses(
    rig: Rig, open_page: OpenPage
) -> None:
    block = {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}
    _, id = rig.post("cool down", MESSAGES_PATH, max_tokens=9, system=[block] * 60)
    page = open_page("recordings")
    page.run(f"location.hash = '#/requests/{id}'")
    page.wait_for("document.querySelectorAll('.json .lossy').length === 60")
    rows = page.run(
        "[...document.querySelectorAll('.waterfall tbody tr')].map((row) => [row.cells[1].innerText, row.className])"
    )
    assert {tuple(rows[0]), tuple(rows[-1])} in (
        {("up/first", "failed"), ("up/second", "succeeded")},
        {("up/second", "failed"), ("up/first", "succeeded")},
    )


def test_usage_is_plotted_and_says_where_it_is_not_available(rig: Rig, open_page: OpenPage) -> None:
    page = open_page("usage", script=usage_script(missing=True))
    page.wait_for("document.querySelector('main').innerText.includes('not available')")
    page = open_page("usage", script=usage_script())
    page.wait_for("document.querySelectorAll('.plot canvas').length === 4")
    assert "2,212" in page.text()
    assert "claude-sonnet-4-5" in page.text()
    budgets = page.wait_for(
        "[...document.querySelectorAll('.budget')].map((each) => [each.className, each.innerText])"
    )
    assert budgets == [["budget near", "$4.50 of $5.00 a month"], ["budget over", "$6.00 of $5.00 a month"]]
    assert XSS in page.text()
    painted = page.run("""[...document.querySelectorAll('.plot canvas')].map((canvas) => {
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return data.some((value, index) => index % 4 === 3 && value > 0);
    })""")
    assert painted == [True] * 4


def test_the_configuration_is_shown_with_origins_and_without_secrets(rig: Rig, open_page: OpenPage) -> None:
    page = open_page("configuration")
    page.wait_for("document.querySelectorAll('.settings tbody tr').length > 50")
    page.type("input[type=search]", "default_model")
    page.wait_for("document.querySelectorAll('.settings tbody tr').length === 1")
    text = page.run("document.querySelector('.settings tbody').innerText")
    assert re.search(r'server.default_model\s+"up/m"\s+.*dragoman.toml:\d+', text)
    page.type("input[type=search]", "admin_key")
    page.wait_for("document.querySelector('.settings tbody').innerText.includes('****')")
    assert ADMIN_KEY not in page.run("document.documentElement.outerHTML")


# The playground.


def test_the_playground_explains_first_and_then_shows_the_stream(rig: Rig, open_page: OpenPage) -> None:
    page = open_page("playground")
    page.wait_for("document.querySelectorAll('datalist option').length > 0")
    page.run("document.querySelector('textarea').focus()")
    body = json.dumps({"model": "up/m", "stream": True, "messages": [{"role": "user", "content": "hold on"}]})
    page.type("textarea", body)
    known = len(rig.upstream.with_request)
    page.click(".buttons button")
    page.wait_for("document.querySelector('.step pre')?.innerText.includes('hold on')")
    assert "authorization: Bearer ****" in page.run("document.querySelector('.step pre').innerText")
    assert len(rig.upstream.with_request) == known
    rig.release.clear()
    page.click(".buttons button.main")
    page.wait_for("document.querySelector('.answer-text')?.innerText.includes('word 2')")
    assert "streams" in page.run("document.querySelector('.response h2').innerText")
    page.run("[...document.querySelectorAll('button')].find((each) => each.innerText === 'Stop').click()")
    page.wait_for("document.querySelector('.response .alert')?.innerText === 'you stopped it'")
    rig.release.set()


def test_the_playground_explains_without_a_client_key(rig: Rig, open_page: OpenPage) -> None:
    refuses = "JSON.stringify({error: {message: 'no client key'}}), {status: 401}"
    script = (
        "const send = window.fetch; window.fetch = (url, ...more) => String(url).endsWith('/v1/models')"
        f" ? Promise.resolve(new Response({refuses})) : send(url, ...more);"
    )
    page = open_page("playground", script=script)
    page.wait_for("document.querySelector('form p.note')?.innerText.includes('needs no client key')")
    page.type("input[list=models]", "up/m")
    page.run("document.activeElement.blur()")
    page.click(".buttons button")
    page.wait_for("document.querySelector('.step pre')?.innerText.includes('Say hello')")
    assert page.run("document.querySelector('.alert')") is None


def test_the_playground_shows_a_refusal(rig: Rig, open_page: OpenPage) -> None:
    page = open_page("playground")
    page.type("textarea", "{")
    page.click(".buttons button.main")
    page.wait_for("document.querySelector('.response .error')?.innerText === 'status 400'")
    page.click(".buttons button")
    page.wait_for("document.querySelector('.step .alert')?.innerText.includes('status 400')")


# Modules without a document.

EVENTS = json.dumps('id: 1\nevent: a\ndata: {"t": "é"}\n\n: silence\n\nevent: b\ndata: {}\n\nevent: c')
# A module, an expression of it (m), and its value.
EXPRESSIONS: list[tuple[str, str, object]] = [
    ("feed.js", f"((p) => [...new TextEncoder().encode({EVENTS})].flatMap((each) => p.push(new Uint8Array([each]))))"
     "(new m.EventParser()).map((each) => [each.id, each.type, each.data])",
     [["1", "a", '{"t": "\u00e9"}'], [None, "", None], [None, "b", "{}"]]),
    # A request of which only the end was seen.
    ("requests.js", "((r) => { r.take('request.ended', {at: 9, duration_s: 2, attempts: 2, outcome: 'completed',"
     " upstream: 'up', upstream_model: 'm', account: 'up/b', failures: [{account: 'up/a', model: 'up/x/m', "
     "kind: 'rate_limit', status: 429, cause: 'slow', seconds: 0.5}]}); return r.attempts.map((each) => "
     "[each.number, each.account, each.upstream, each.model, each.at, each.end, each.cause]); })"
     "(new m.Request('i', 9))",
     [[1, "up/a", "up", "x/m", 7, 7.5, "slow"], [2, "up/b", "up", "m", 7.5, 9, ""]]),
    # A refusal whose duration nobody has measured.
    ("requests.js", "((r) => { r.take('request.begun', {at: 7}); r.take('request.ended', {at: 9, outcome: 'refused'});"
     " return r.seconds(100); })(new m.Request('i', 7))", 2),
    ("json_lines.js", "m.nearestPointer('/a/b/c', new Set(['', '/a']))", "/a"),
    ("json_lines.js", "m.nearestPointer('/x', new Set(['', '/a']))", ""),
    ("json_lines.js", "m.jsonLines({'a/b~': [1, {}]}, 99).lines.map((each) => each.pointer)",
     ["", "/a~1b~0", "/a~1b~0/0", "/a~1b~0/1", None, None]),
    ("json_lines.js", "m.jsonLines([1, 2, 3], 2)", {"lines": [
        {"depth": 0, "pointer": "", "text": "["}, {"depth": 1, "pointer": "/0", "text": "1,"}], "truncated": True}),
    ("usage_series.js", "[0.1, 0.5, 0.9].map((each) => m.quantile([0, 10, 0, 10], [1, 2, 4], each))", [1.2, 2, 4]),
    ("usage_series.js", "m.quantile([0, 0], [1], 0.5)", None),
    ("usage_series.js", "((t) => [t.times.length, t.rows.map((row) => row?.requests ?? 0)])(m.timeline({rows: "
     "[{day: '2026-01-02', requests: 7}], since: '2026-01-01T05:00:00Z', until: '2026-01-03T06:00:00Z'}, 'day'))",
     [3, [0, 7, 0]]),
    ("plot.js", "m.alone([null, 1, null, 2, 3, null, 4])", [1, 6]),
    ("format.js", "[0, 9999, 12345, 1234567].map(m.short)", ["0", "9,999", "12.3k", "1.23M"]),
    ("format.js", "[0.0004, 0.0123, 9.99, 61, 3700].map(m.seconds)",
     ["0 ms", "12 ms", "9.99 s", "1 min 01 s", "1 h 01 min"]),
    ("format.js", "[0, 59.2, 61, 3600].map(m.countdown)", ["0:00", "1:00", "1:01", "1:00:00"]),
    ("format.js", "[0, 0.00001, 0.0042, 0.5, 12].map(m.dollars)", ["$0", "$0.000010", "$0.00420", "$0.5000", "$12.00"]),
    ("format.js", """m.shellQuoted("it's")""", r"'it'\''s'"),
    ("format.js", r"""m.shellQuoted("\x7f'; \x1b[201~\t\\n\r")""", r"$'\x7f\'; \x1b[201~\x09\\n\x0d'"),
]  # fmt: skip


def test_modules_compute_what_views_show(open_page: OpenPage) -> None:
    page = open_page()
    for module, expression, value in EXPRESSIONS:
        script = f"import(new URL('{module}', document.baseURI)).then((m) => {expression})"
        assert page.run(script) == value, expression


# The page as a whole.


def test_the_page_asks_for_the_admin_key_and_keeps_it_in_the_tab(rig: Rig, browser: Chromium) -> None:
    page = browser.open(rig.url)
    try:
        page.wait_for("document.querySelector('.keyform')")
        page.type("input[type=password]", "wrong")
        page.click("form button")
        page.wait_for(
            "document.querySelector('.keyform .error')?.innerText.includes('this key is another one')"
        )
        page.type("input[type=password]", ADMIN_KEY)
        page.click("form button")
        page.wait_for("document.querySelector('.feed.open') && document.querySelector('.grid')")
        assert page.run("[localStorage.length, document.cookie, Object.keys(sessionStorage)]") == [
            0, "", ["dragoman.admin_key"],
        ]  # fmt: skip
        urls = page.run(
            "performance.getEntriesByType('resource').map((each) => each.name).concat(location.href)"
        )
        assert len(urls) > 10
        assert not [
            url for url in urls if ADMIN_KEY in url or not url.startswith(rig.url.removesuffix("ui/"))
        ]
        page.click("button.quiet")
        page.wait_for("document.querySelector('.keyform')")
        assert page.run("sessionStorage.length") == 0
        assert page.problems == []
    finally:
        page.close()


def test_the_policy_is_in_force(rig: Rig, open_page: OpenPage) -> None:
    page = open_page()
    blocked = page.run("""new Promise((resolve) => {
      const seen = [];
      addEventListener('securitypolicyviolation', (event) => {
        seen.push(event.effectiveDirective);
        if (seen.length === 3) resolve(seen.sort());
      });
      const script = document.createElement('script');
      script.textContent = 'document.title = "run"';
      const style = document.createElement('style');
      const image = document.createElement('img');
      image.src = 'http://evil.example/x.png';
      style.textContent = 'body { color: red }';
      document.body.append(script, style, image);
    })""")
    assert blocked == ["img-src", "script-src-elem", "style-src-elem"]
    assert page.run("document.title") == "Dragoman"
    page.problems.clear()


CONTROLS = "input, select, textarea, button, a, [role=grid], [tabindex='0']"
UNNAMED = f"""[...document.querySelectorAll("{CONTROLS}")].filter((each) =>
  !(each.getAttribute('aria-label') || each.labels?.length || each.innerText.trim() || each.placeholder
    || each.tagName === 'PRE')).map((each) => each.outerHTML)"""


@pytest.mark.parametrize("width", [1440, 390])
def test_each_view_has_its_landmarks_and_fits(rig: Rig, open_page: OpenPage, width: int) -> None:
    _, id = rig.post("Hello")
    page = open_page(width=width)
    for view in (*VIEWS, f"requests/{id}"):
        page.run(f"location.hash = '#/{view}'")
        page.wait_for("document.querySelectorAll('main h1').length === 1")
        time.sleep(0.3)  # for what it asks the gateway
        assert page.run("['header', 'nav', 'main'].map((each) => document.querySelectorAll(each).length > 0)") == [
            True, True, True,
        ]  # fmt: skip
        assert page.run(UNNAMED) == [], view
        assert (
            page.run("document.querySelectorAll('th:empty, h1:empty, h2:empty').length") <= 1
        )  # of the buttons
        wide = "[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth]"
        assert max(page.run(wide)) <= width, view
        assert (
            view.startswith("requests")
            or page.run("document.querySelector('[aria-current=page]').hash") == f"#/{view}"
        )
