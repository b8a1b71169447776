"""The files of the page at /ui, and what it asks the gateway for besides accounts, keys and events."""

# ruff: noqa: ASYNC240 -- the files are small and local

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway.simulated import Gateway, gateway
from virtual_time import REAL_BACKENDS

from dragoman_server.config.loader import load
from dragoman_server.config.reload import with_settings_of_the_start
from dragoman_server.config.show import shown_settings
from dragoman_server.http.admin.page import CONTENT_SECURITY_POLICY, UI_FOLDER, page_files
from dragoman_server.recordings import listing
from dragoman_server.recordings.listing import find_recordings

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

VENDORED = UI_FOLDER / "vendor" / "VENDORED.txt"
OWN = [path for path in UI_FOLDER.rglob("*.*") if path.parent.name != "vendor"]
TYPES = {"": "text/html", "main.js": "text/javascript", "vendor/preact.mjs": "text/javascript", "style.css": "text/css",
         "icon.svg": "image/svg+xml"}  # fmt: skip


async def test_each_file_has_the_policy() -> None:
    assert "'unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    async with gateway() as running:
        for name in ["", *page_files()]:
            client = await running.call(f"/ui/{name}", method="GET")
            assert client.status == 200, name
            assert client.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert client.headers["x-content-type-options"] == "nosniff"
            assert client.headers["referrer-policy"] == "no-referrer"
            assert client.headers["cross-origin-opener-policy"] == "same-origin"
            expected = TYPES.get(name, client.headers["content-type"].partition(";")[0])
            assert client.headers["content-type"].partition(";")[0] == expected
            etag = {"if-none-match": client.headers["etag"]}
            again = await running.call(f"/ui/{name}", method="GET", headers=etag)
            assert (again.status, again.body) == (304, b"")


async def test_paths_beside_the_files_lead_nowhere() -> None:
    async with gateway() as running:
        for path in (
            "nothing.js",
            "../http/auth.py",
            "..",
            "vendor",
            "vendor/",
            "/etc/passwd",
            "index.html/",
        ):
            assert (await running.call(f"/ui/{path}", method="GET")).status == 404, path
        redirect = await running.call("/ui", method="GET")
        assert (redirect.status, redirect.headers["location"]) == (308, "ui/")
        assert (await running.call("/ui/", method="POST")).status == 404  # no look, so there is nothing


def test_the_vendored_files_are_those_of_their_packages() -> None:
    rows = [line.split() for line in VENDORED.read_text().splitlines()[2:]]
    assert {row[0]: row[-1] for row in rows} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDORED.parent.glob("*.*")
        if path != VENDORED and not path.name.startswith("LICENSE")
    }
    for row in rows:
        assert (VENDORED.parent / f"LICENSE.{row[1]}").is_file()


SETS_HTML = r"innerHTML|outerHTML|insertAdjacentHTML|dangerously|eval\(|new Function|document\.write"
ELSEWHERE = r"""(https?:)?//[a-z0-9-]+\.[a-z]|\bon[a-z]+="|style="|<style"""


def test_the_page_names_no_other_host_and_sets_no_html() -> None:
    for path in OWN:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert text.count("\n") <= 300, path
        assert not re.search(f"{SETS_HTML}|{ELSEWHERE}", text), path


# Explanations.


async def test_a_request_is_explained_as_the_command_does() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "chat/m", "max_tokens": 9, "messages": messages, "container": "c"}
    async with gateway() as running:
        found = await running.json("/admin/explain/v1/messages", body)
        [step] = found["upstreams"]
        expected = ("chat/m", "anthropic_messages", "translated")
        assert (found["model"], found["protocol"], step["mode"]) == expected
        assert step["body"] == {"model": "m", "messages": body["messages"], "max_tokens": 9}
        assert [loss[:2] for loss in step["losses"]] == [["dropped", "/container"]]
        assert "sk-upstream" not in json.dumps(found)
        refused = await running.json("/admin/explain/v1/messages", {"model": "no/such"})
        assert refused["upstreams"][0]["status"] in (400, 404)
        gemini = await running.json(
            "/admin/explain/v1beta/models/chat/m:streamGenerateContent?alt=sse", {"contents": []}
        )
        assert gemini["model"] == "chat/m"
        error = await running.json("/admin/explain/v1/nothing", body, status=404)
        assert "no model is requested at '/v1/nothing'" in json.dumps(error)
        assert not running.upstreams.sent


async def test_a_body_that_is_too_large_would_be_refused() -> None:
    async with gateway(max_body_bytes=1024) as running:
        found = await running.json("/admin/explain/v1/messages", {"model": "x" * 1024})
    assert [step["status"] for step in found["upstreams"]] == [413]


# The configuration.

CONFIG = """[server]
port = 9000
default_model = "up/m"
[[upstreams]]
name = "up"
protocol = "openai_chat"
base_url = "http://127.0.0.1:9/v1"
api_key = "${UP_KEY}"
"""


def test_the_origins_of_settings_survive_a_reload(tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(CONFIG)
    environ = {"UP_KEY": "canary-of-the-upstream"}
    running = load(environ=environ, path=str(file)).settings
    file.write_text(CONFIG.replace("port = 9000", "# no port").replace("[[up", "log_level = 'debug'\n[[up"))
    wanted = load(environ=environ, path=str(file), flags={"host": "127.0.0.2"}).settings
    settings, needs_restart = with_settings_of_the_start(wanted, running)
    assert needs_restart == ("server.host", "server.port")
    shown = {each.key: (each.value, str(each.origin)) for each in shown_settings(settings)}
    assert shown["server.host"] == ('"127.0.0.1"', "default")
    assert shown["server.port"] == ("9000", f"{file}:2")
    assert shown["server.log_level"] == ('"debug"', f"{file}:4")
    assert shown["upstreams[0].api_key"] == ('"****"', f"{file}:9, UP_KEY")


async def test_the_configuration_in_force_has_no_secrets() -> None:
    async with gateway(max_body_bytes=4096) as running:
        rows = (await running.get("/admin/configuration"))["settings"]
    found = {row["key"]: (row["value"], row["origin"]) for row in rows}
    assert found["server.max_body_bytes"] == ("4096", "default")
    assert found["upstreams[0].name"] == ('"chat"', "default")
    assert "sk-upstream" not in json.dumps(rows)


# Recordings.


async def asked(running: Gateway, *texts: str) -> list[str]:
    """Send requests. Return the ids, the newest first."""
    ids = []
    for text in texts:
        body = {"model": "chat/echo", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
        client = await running.call("/v1/messages", body)
        assert client.status == 200
        ids.append(client.headers["dragoman-request-id"])
    return sorted(ids, reverse=True)  # within one second the id decides


async def test_recordings_are_listed_and_searched(tmp_path: Path) -> None:
    async with gateway(record=str(tmp_path)) as running:
        assert await running.get("/admin/recordings") == {"recordings": [], "cursor": None}
        ids = await asked(running, "alpha", "beta", 'a "quoted" gamma')
        times = sorted({path.name[:16] for path in tmp_path.glob("*.json")})

        async def listed(query: str) -> tuple[list[str], str | None]:
            found = await running.get(f"/admin/recordings?{query}")
            return [each["id"] for each in found["recordings"]], found["cursor"]

        if len(times) == 1:
            assert await listed("") == (ids, None)
        first, cursor = await listed("limit=2")
        assert len(first) == 2
        assert cursor is not None
        rest, end = await listed(f"limit=2&cursor={cursor}")
        assert (sorted([*first, *rest]), end) == (sorted(ids), None)
        wrong = await running.call(f"/admin/recordings?cursor={ids[0]}", method="GET")
        assert (wrong.status, wrong.error["message"][:14]) == (400, "cursor must be")
        for query, count in (
            ("q=ALPHA", 1),
            ("q=gamma", 1),
            ("q=nowhere", 0),
            ("model=chat/echo", 3),
            ("model=x", 0),
        ):
            assert len((await listed(query))[0]) == count, query
        [one] = (await running.get("/admin/recordings?q=beta"))["recordings"]
        expected = ("anthropic_messages", ["chat/echo"], 200)
        assert (one["protocol"], one["upstreams"], one["status"]) == expected
        for query in ("limit=0", "limit=201", "limit=x"):
            await running.get(f"/admin/recordings?{query}", status=400)


async def test_a_search_reads_so_many_bytes_and_says_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway(record=str(tmp_path)) as running:
        await asked(running, "alpha", "beta", "gamma")
    monkeypatch.setattr(listing, "MAX_READ_BYTES", 1)
    cursor, count = None, 0
    while True:
        found = find_recordings(tmp_path, cursor=cursor, limit=50, model=None, text="nowhere")
        cursor, count = found.cursor, count + 1
        if cursor is None:
            break
    assert count == 3


async def test_one_recording_and_what_becomes_of_it_now(tmp_path: Path) -> None:
    async with gateway(record=str(tmp_path)) as running:
        [id] = await asked(running, "alpha")
        [file] = tmp_path.glob("*.json")
        client = await running.call(f"/admin/recordings/{id}", method="GET")
        assert client.body == file.read_bytes()
        expected = ("application/json", "no-store")
        assert (client.headers["content-type"], client.headers["cache-control"]) == expected
        same = await running.get(f"/admin/recordings/{id}/replay")
        assert (same["difference"], same["error"], same["from"]) == (None, "", "chat/echo")
        changed = json.loads(file.read_bytes())
        changed["response"]["pieces"][0][1] = changed["response"]["pieces"][0][1].replace("alpha", "omega")
        file.write_text(json.dumps(changed))
        other = (await running.get(f"/admin/recordings/{id}/replay"))["difference"]
        expected = ("response", True, True)
        assert (other["where"], "omega" in other["recorded"], "alpha" in other["now"]) == expected
        file.write_text("{}")
        await running.get(f"/admin/recordings/{id}/replay", status=422)
        assert (await running.get("/admin/recordings"))["recordings"] == []


def elsewhere(tmp_path: Path) -> Iterator[str]:
    """Yield ids that lead to no recording."""
    id = "f" * 32
    (tmp_path / f"20260101T000000Z-{id}.part").write_text("{}")
    (tmp_path.parent / f"20260101T000000Z-{'e' * 32}.json").write_text("{}")
    (tmp_path / f"20260101T000000Z-{'d' * 32}.json").symlink_to("/etc/hostname")
    yield from (
        id,
        "e" * 32,
        "d" * 32,
        f"..%2F20260101T000000Z-{'e' * 32}.json",
        "..",
        "*",
        f"20260101T000000Z-{id}",
    )


async def test_ids_lead_to_recordings_only(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    async with gateway(record=str(folder)) as running:
        for id in elsewhere(folder):
            for path in (f"/admin/recordings/{id}", f"/admin/recordings/{id}/replay"):
                assert (await running.call(path, method="GET")).status == 404, path
        assert (await running.get("/admin/recordings"))["recordings"] == []


async def test_without_the_setting_there_are_no_recordings() -> None:
    async with gateway() as running:
        for path in ("", f"/{'0' * 32}", f"/{'0' * 32}/replay"):
            error: Any = await running.get(f"/admin/recordings{path}", status=404)
            assert "set server.record" in json.dumps(error)
