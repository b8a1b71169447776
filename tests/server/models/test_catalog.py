"""The age and refresh of the upstreams' lists of models: rows of catalog.txt, and what takes several readers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
import rows
from gateway.fakes import Script, Sleep
from gateway.scripted import ListingUpstreams, openai_list
from msgspec.structs import replace
from virtual_time import VIRTUAL_BACKENDS, backend

from dragoman_server.models import catalog as catalog_module
from dragoman_server.models.catalog import (
    FIRST_WAIT_S,
    RETRY_S,
    ModelCatalog,
)
from dragoman_server.models.info import ModelInfo
from dragoman_server.settings import AccountSettings, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import UpstreamUnreachable

CHAT, MESSAGES = "openai_chat", "anthropic_messages"
TTL_S = 300.0
CANARY = "sk-canary-0123456789"


def upstream(name: str, protocol: str = CHAT, **more: Any) -> UpstreamSettings:
    return UpstreamSettings(name=name, protocol=protocol, base_url=f"http://{name}.test/v1", **more)


def settings_of(
    *upstreams: UpstreamSettings, models: Mapping[str, Any] | None = None, **server: Any
) -> Settings:
    server = {"simulator": False, **server}
    return Settings(server=ServerSettings(**server), upstreams=upstreams, models=models or {})


def later(seconds: float, response: Script) -> Script:
    """Return the same response after so long."""
    return Script(response.body, response.status, response.headers, connect=[Sleep(seconds)])


@dataclass
class Running:
    catalog: ModelCatalog
    upstreams: ListingUpstreams

    async def names(self, at: float | None = None, takes: float = 0) -> list[str]:
        """Return the names that are listed at this time; listing them takes so many seconds."""
        if at is not None:
            await anyio.sleep_until(at)
        begun = anyio.current_time()
        found = [name for name in await self.catalog.entries() if "/" in name]
        assert anyio.current_time() - begun == pytest.approx(takes)
        await anyio.wait_all_tasks_blocked()  # started tasks have begun
        return found


@asynccontextmanager
async def running(
    *upstreams: UpstreamSettings, server: Mapping[str, Any] | None = None, **scripts: list[Script]
) -> AsyncIterator[Running]:
    """scripts: the responses of the upstream of this name."""
    client = ListingUpstreams(
        {f"http://{name}.test/v1/models": responses for name, responses in scripts.items()}
    )
    upstreams_of_test = upstreams or tuple(upstream(name, api_key=Secret(CANARY)) for name in scripts)
    catalog = ModelCatalog(settings_of(*upstreams_of_test, **(server or {})), lambda name: client)
    async with client, catalog.running():
        yield Running(catalog, client)


# What the first line of a row is made of.
NAMES: dict[str, Any] = {
    "openai_list": openai_list,
    "later": later,
    "upstream": upstream,
    "Script": Script,
    "UNREACHABLE": UpstreamUnreachable("http://up.test: cannot connect"),
}


@pytest.mark.parametrize("loop", VIRTUAL_BACKENDS)
def test_the_ages_of_lists(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """Names that are read at times, how long that took, the requests for lists until the next line, and the log."""
    caplog.set_level("INFO", "dragoman.models")

    async def read(lines: list[str]) -> list[str]:
        upstreams, named = eval(f"(lambda *upstreams, **named: (upstreams, named))({lines[0]})", NAMES)
        found = list[str]()
        caplog.clear()
        async with running(*upstreams, **named) as it:
            for line in lines[1:]:
                await anyio.sleep_until(float(line))
                sent = len(it.upstreams.sent)
                names = [name for name in await it.catalog.entries() if "/" in name]
                took = anyio.current_time() - float(line)
                await anyio.wait_all_tasks_blocked()  # started tasks have begun
                asked = sorted(f"{each.host} asked at {each.at:g}" for each in it.upstreams.sent[sent:])
                logged = [f"{each.levelname}: {each.getMessage()}" for each in caplog.records]
                notes = [f"after {took:g} s"] * (took > 0) + asked + [f"{it.upstreams.open_now} open"]
                found.append("; ".join([f"{line}: {' '.join(names) or 'none'}", *notes, *logged]))
                caplog.clear()
        return found

    def output_of(lines: list[str]) -> list[str]:
        name, options = backend(loop)  # whose clock begins at 0
        return anyio.run(read, lines, backend=name, backend_options=options)

    rows.check(Path(__file__).with_name("catalog.txt"), output_of)


@pytest.mark.anyio
async def test_a_list_that_decides_a_route_is_waited_for() -> None:
    async with running(up=[later(FIRST_WAIT_S - 0.1, openai_list("qwen3"))]) as it:
        await it.catalog.ensure_list_for("qwen3")
        await it.catalog.ensure_list_for("up/claude-opus-5-5")
        assert it.upstreams.sent == []  # nothing depends on a list
        await it.catalog.ensure_list_for("claude-opus-5-5")
        assert list(it.catalog.listed["up"]) == ["qwen3"]
        assert anyio.current_time() == pytest.approx(FIRST_WAIT_S - 0.1)


@pytest.mark.anyio
async def test_only_the_list_of_that_upstream_is_requested_with_the_usual_deadline() -> None:
    slow = replace(upstream("slow", MESSAGES), base_url="http://slow.test")
    async with running(upstream("other"), slow, slow=[later(60, openai_list("a"))]) as it:
        await it.catalog.ensure_list_for("claude-opus-5-5")
        assert anyio.current_time() == pytest.approx(FIRST_WAIT_S)
        assert it.catalog.listed == {}
        assert it.upstreams.requested_at("other.test") == []


@pytest.mark.anyio
async def test_a_second_reader_waits_no_longer_than_the_first() -> None:
    async with running(up=[later(60, openai_list("a"))]) as it, anyio.create_task_group() as tasks:
        tasks.start_soon(it.names, None, FIRST_WAIT_S)
        tasks.start_soon(it.names, 0.5, FIRST_WAIT_S - 0.5)
        tasks.start_soon(it.names, FIRST_WAIT_S + 0.1, 0)


@pytest.mark.anyio
async def test_many_at_once_are_one_question() -> None:
    async with running(up=[later(1, openai_list("a"))]) as it:
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(it.names, None, 1)
        assert len(it.upstreams.sent) == 1


@pytest.mark.anyio
async def test_a_list_is_the_same_object_until_it_changes() -> None:
    async with running(up=[openai_list("a"), openai_list("a"), openai_list("b")]) as it:
        lists = []
        for at in (0, TTL_S, 2 * TTL_S):
            await it.names(at=at)
            lists.append(it.catalog.listed["up"])
        assert len(it.upstreams.sent) == 3
        assert lists[0] is lists[1]
        assert list(lists[2]) == ["b"]


@pytest.mark.anyio
async def test_a_bug_ends_one_question_and_not_the_gateway(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> tuple[ModelInfo, ...]:
        raise ZeroDivisionError

    async with running(up=[openai_list("a")]) as it:
        with monkeypatch.context() as patch:
            patch.setattr(catalog_module, "fetch_models", broken)
            assert await it.names() == []
        assert "ZeroDivisionError" in caplog.text
        await it.names(at=RETRY_S)
        assert await it.names(at=RETRY_S + 1) == ["up/a"]


@pytest.mark.anyio
async def test_a_client_that_leaves_ends_no_question() -> None:
    async with running(up=[later(1, openai_list("a"))]) as it:
        with anyio.move_on_after(0.5):
            await it.catalog.entries()
        assert it.upstreams.open_now == 1
        await anyio.sleep_until(1.1)
        assert await it.names() == ["up/a"]
        assert len(it.upstreams.sent) == 1


@pytest.mark.anyio
async def test_the_end_ends_the_questions() -> None:
    async with running(up=[later(20, openai_list("a"))]) as it:
        await it.names(takes=FIRST_WAIT_S)
        assert it.upstreams.open_now == 1
    assert it.upstreams.open_now == 0
    assert anyio.current_time() < 3
    # Later readers get the known list, and no request is sent.
    assert await it.names() == []
    assert len(it.upstreams.sent) == 1


@pytest.mark.anyio
async def test_an_error_of_the_application_stays_what_it_is() -> None:
    async def fails() -> None:
        async with running(up=[later(20, openai_list("a"))]) as it:
            await it.names(takes=FIRST_WAIT_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()


@pytest.mark.anyio
async def test_outside_its_block_no_list_is_requested() -> None:
    client = ListingUpstreams({"http://up.test/v1/models": [openai_list("a")]})
    catalog = ModelCatalog(settings_of(upstream("up", models=("own",))), lambda name: client)
    assert list(await catalog.entries()) == ["own", "up/own"]
    assert client.sent == []


@pytest.mark.anyio
async def test_the_caller_chooses_the_accounts_for_a_list() -> None:
    client = ListingUpstreams({"http://up.test/v1/models": [openai_list("a")]})
    good = AccountSettings(upstream="up", name="good", api_key=Secret(CANARY))
    catalog = ModelCatalog(settings_of(upstream("up")), lambda name: client, accounts=lambda upstream: [good])
    async with client, catalog.running():
        await catalog.entries()
    assert client.sent[0].headers["authorization"] == f"Bearer {CANARY}"
