"""The names of models, and the age and refresh of the upstreams' lists."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from gateway.fakes import Script, Sleep
from gateway.scripted import ListingUpstreams, openai_list
from msgspec.structs import replace

from dragoman_server.models import catalog as catalog_module
from dragoman_server.models.catalog import (
    FIRST_WAIT_S,
    REFRESH_S,
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


# Which names there are.


# Ages of lists.


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


@pytest.mark.anyio
async def test_no_list_is_requested_before_the_first_reader() -> None:
    async with running(up=[openai_list("a")]) as it:
        await anyio.sleep(3600)
        assert it.upstreams.sent == []
        assert await it.names() == ["up/a"]
        assert len(it.upstreams.sent) == 1


@pytest.mark.anyio
async def test_the_first_list_is_waited_for() -> None:
    async with running(up=[later(FIRST_WAIT_S - 0.1, openai_list("a"))]) as it:
        assert await it.names(takes=FIRST_WAIT_S - 0.1) == ["up/a"]


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
async def test_lists_are_requested_at_the_same_time() -> None:
    slow = {name: [later(1.5, openai_list("m"))] for name in ("a", "b", "c", "d")}
    async with running(**slow) as it:
        assert await it.names(takes=1.5) == ["a/m", "b/m", "c/m", "d/m"]


@pytest.mark.anyio
async def test_a_slow_upstream_is_left_out_and_filled_in() -> None:
    async with running(slow=[later(10, openai_list("s"))], quick=[openai_list("q")]) as it:
        assert await it.names(takes=FIRST_WAIT_S) == ["quick/q"]
        # The next reader does not wait again.
        assert await it.names() == ["quick/q"]
        assert await it.names(at=9) == ["quick/q"]
        assert await it.names(at=10.1) == ["slow/s", "quick/q"]
        assert it.upstreams.requested_at("slow.test") == [0]


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
async def test_a_list_counts_for_its_time_and_then_until_the_next_has_come() -> None:
    async with running(up=[openai_list("old"), later(5, openai_list("new"))]) as it:
        assert await it.names() == ["up/old"]
        assert await it.names(at=TTL_S - 0.1) == ["up/old"]
        assert it.upstreams.requested_at("up.test") == [0]
        # Too old: it is returned at once all the same, and requested again in the background.
        assert await it.names(at=TTL_S) == ["up/old"]
        assert await it.names(at=TTL_S + 4) == ["up/old"]
        assert await it.names(at=TTL_S + 5.1) == ["up/new"]
        assert it.upstreams.requested_at("up.test") == [0, TTL_S]
        # The time counts from when the list came.
        await it.names(at=TTL_S + 5 + TTL_S - 0.1)
        assert len(it.upstreams.sent) == 2
        await it.names(at=TTL_S + 5 + TTL_S)
        assert len(it.upstreams.sent) == 3


@pytest.mark.anyio
async def test_the_time_is_a_setting() -> None:
    async with running(up=[openai_list("a")], server={"model_list_ttl_s": 7.0}) as it:
        for at in (0, 6.9, 7, 13.9, 14):
            await it.names(at=at)
            await anyio.sleep(0.01)
        assert it.upstreams.requested_at("up.test") == [0, 7, pytest.approx(14, abs=0.1)]


@pytest.mark.anyio
async def test_a_model_that_is_listed_no_more_is_gone() -> None:
    async with running(up=[openai_list("a", "b"), openai_list("b"), openai_list()]) as it:
        assert await it.names() == ["up/a", "up/b"]
        await it.names(at=TTL_S)
        assert await it.names(at=TTL_S + 1) == ["up/b"]
        await it.names(at=3 * TTL_S)
        assert await it.names(at=3 * TTL_S + 1) == []


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


FAILURES = [
    Script(status=500),
    Script([b"<html>"]),
    Script(connect=[UpstreamUnreachable("http://up.test: cannot connect")]),
    later(REFRESH_S + 1, openai_list("late")),
]


@pytest.mark.anyio
@pytest.mark.parametrize("failure", FAILURES, ids=["status", "no list", "connection refused", "silence"])
async def test_a_failing_upstream_keeps_its_list_and_is_logged_once(
    failure: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.models")
    responses = [openai_list("a"), failure, failure, later(0.5, openai_list("b")), failure]
    # Reads at this interval start a request each time, even if the one before ended late.
    step = RETRY_S + REFRESH_S + 2
    async with running(up=responses) as it:
        assert await it.names() == ["up/a"]
        assert await it.names(at=TTL_S) == ["up/a"]
        assert await it.names(at=TTL_S + step) == ["up/a"]
        assert await it.names(at=TTL_S + 2 * step) == ["up/a"]
        assert len(it.upstreams.sent) == 4
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "upstream up cannot" in caplog.text
        assert "model_list = false" in caplog.text

        assert await it.names(at=TTL_S + 2 * step + 1) == ["up/b"]
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
        await it.names(at=2 * TTL_S + 3 * step)
        assert await it.names(at=2 * TTL_S + 4 * step) == ["up/b"]
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
        assert CANARY not in caplog.text


@pytest.mark.anyio
async def test_a_failing_upstream_is_tried_again_soon_in_the_background() -> None:
    async with running(up=[Script(status=503), later(1, openai_list("a"))], other=[openai_list("b")]) as it:
        assert await it.names() == ["other/b"]
        await it.names(at=RETRY_S - 0.1)
        assert it.upstreams.requested_at("up.test") == [0]
        # It was requested before, so this is not the first time.
        assert await it.names(at=RETRY_S) == ["other/b"]
        assert await it.names(at=RETRY_S + 1.1) == ["up/a", "other/b"]
        assert it.upstreams.requested_at("up.test") == [0, RETRY_S]
        assert it.upstreams.requested_at("other.test") == [0]


@pytest.mark.anyio
async def test_an_upstream_has_a_deadline() -> None:
    async with running(up=[later(1e6, openai_list("a")), openai_list("b")]) as it:
        await it.names(takes=FIRST_WAIT_S)
        assert it.upstreams.open_now == 1
        await anyio.sleep_until(REFRESH_S + 0.1)
        assert it.upstreams.open_now == 0
        await it.names(at=REFRESH_S + RETRY_S)
        assert await it.names(at=REFRESH_S + RETRY_S + 1) == ["up/b"]


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
async def test_an_upstream_without_a_list_gets_no_request() -> None:
    upstreams_of_test = (upstream("up", models=("own",), model_list=False), upstream("other"))
    async with running(*upstreams_of_test, up=[openai_list("a")], other=[openai_list("b")]) as it:
        assert await it.names() == ["up/own", "other/b"]
        assert it.upstreams.requested_at("up.test") == []


@pytest.mark.anyio
async def test_the_caller_chooses_the_accounts_for_a_list() -> None:
    client = ListingUpstreams({"http://up.test/v1/models": [openai_list("a")]})
    good = AccountSettings(upstream="up", name="good", api_key=Secret(CANARY))
    catalog = ModelCatalog(settings_of(upstream("up")), lambda name: client, accounts=lambda upstream: [good])
    async with client, catalog.running():
        await catalog.entries()
    assert client.sent[0].headers["authorization"] == f"Bearer {CANARY}"
