"""What /metrics has after requests of each kind, who may read it, and that labels stay few."""

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import rows
from gateway.fakes import FakeClient, Sleep, call
from gateway.provider import PoolGateway, good, pool_of
from gateway.provider_errors import limited
from gateway.scripted import CHAT, MESSAGES, SECRET, ScriptedGateway, chat_response, scripted, whole
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from virtual_time import REAL_BACKENDS

from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.app import Application, create_app
from dragoman_server.gateway import Gateway
from dragoman_server.platform.extras import install_command
from dragoman_server.policy.health import Health
from dragoman_server.settings import Price, ServerSettings, Settings
from dragoman_server.settings.secret import Secret
from dragoman_server.telemetry import metrics
from dragoman_server.telemetry.metrics import METRICS, OTHER

# The text is made in a thread.
pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

KEY = "metrics-0123456789-0123456789-0123456789"
ADMIN_KEY = "admin-0123456789-0123456789-0123456789"
ON = {"metrics_key": Secret(KEY)}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def scrape(app: Application, accept: str = "") -> FakeClient:
    client = await call(app, "/metrics", method="GET", headers={**bearer(KEY), "accept": accept})
    assert client.status == 200, client.body
    return client


async def samples(app: Application, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of one metric, by its labels in alphabetical order, without those that are empty."""
    text = (await scrape(app)).body.decode()
    return {
        tuple(f"{label}={value}" for label, value in sorted(sample.labels.items()) if value): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def gateway(response: Any = None, **more: Any) -> ScriptedGateway:
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    response = response or whole(chat_response({"content": "Hi"}, usage=usage))
    return scripted(CHAT, response, upstream={"models": ("m",), "model_list": False}, **ON, **more)


REQUEST = {"model": "up/m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}]}


# What is counted.


def accounts(**plays: Any) -> PoolGateway:
    return pool_of(CHAT, plays, **ON)


HEDGED = {"a": good("Hello", before=[Sleep(60)]), "b": good("Hello")}
# Gateways, and the requests to them: the path, and the body.
SERVED: dict[str, tuple[Callable[[], ScriptedGateway], list[tuple[str, Any]]]] = {
    "a request that succeeds": (lambda: gateway(keys={"red": {}}), [("/v1/messages", REQUEST)]),
    "a request of which something is lost": (gateway, [("/v1/messages", {**REQUEST, "top_k": 3})]),
    "an error of the upstream": (
        lambda: gateway(whole({"error": {"message": "slow down", "type": "rate_limit_error"}}, 429)),
        [("/v1/messages", REQUEST)],
    ),
    "a request that is refused": (gateway, [("/v1/messages", {**REQUEST, "messages": 5})]),
    "a path that does not exist": (gateway, [("/v1/nothing", {})]),
    "a count of tokens": (
        lambda: scripted(MESSAGES, whole({"input_tokens": 20}), upstream={"counts_tokens": True}, **ON),
        [("/v1/messages/count_tokens", REQUEST)],
    ),
    "budgets of a key and of its group": (
        lambda: gateway(
            keys={"red": {"budget": 100.0, "group": "team"}, "blue": {}},
            groups={"team": {"budget": 54.0}},
            prices=[Price(model="*", input=1e6, output=1e6)],
        ),
        [("/v1/messages", REQUEST)],
    ),
    "names that a client made up": (
        gateway,
        [("/v1/messages", {**REQUEST, "model": f"up/invented-{number}"}) for number in range(3)],
    ),
}
POOLED: dict[str, Callable[[], PoolGateway]] = {
    "an account at its limit and one that responds": lambda: accounts(a=limited(CHAT), b=good("Hello")),
    "a second attempt beside the first": lambda: pool_of(CHAT, HEDGED, upstream={"hedge_s": 0.01}, **ON),
}


async def metrics_after(lines: list[str]) -> list[str]:
    if lines[0] in SERVED:
        make, calls = SERVED[lines[0]]
        made = make()
        for path, body in calls:
            await made.call(path, body)
        app = made.app
    elif lines[0] in POOLED:
        pool = POOLED[lines[0]]()
        await pool.call(CHAT)
        app = pool.app
    else:
        pool = accounts(a=good("Hello"), b=good("Hello"))
        await pool.store.apply(Change("up/a", lambda health: health.after_success(remaining=0.25)))
        app = pool.app
    text = (await scrape(app)).body.decode()
    left_out = r"_created$|_bucket$|build_info|(seconds|tokens_per_second)_sum$"
    return [
        " ".join([sample.name, *(f"{label}={value}" for label, value in sample.labels.items() if value)])
        + f": {sample.value:g}"
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("dragoman_") and sample.value and not re.search(left_out, sample.name)
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_counted(backend: str) -> None:
    rows.check(
        Path(__file__).with_name("metrics.txt"),
        lambda lines: anyio.run(metrics_after, lines, backend=backend),
    )


async def test_the_part_of_the_input_that_was_cached_is_in_its_bucket() -> None:
    made = gateway()
    await made.call("/v1/messages", REQUEST)
    buckets = await samples(made.app, "dragoman_cached_input_ratio_bucket")
    found = (buckets["le=0.1", "model=m", "upstream=up"], buckets["le=0.25", "model=m", "upstream=up"])
    assert found == (0, 1)


async def test_open_streams_and_the_client_that_leaves() -> None:
    pool = accounts(a=good("Hello", between=[Sleep(60)]))

    async def leave() -> None:
        await pool.call(CHAT, leaves_at=b"data")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.call, CHAT)
        while not pool.provider.sent:
            await anyio.lowlevel.checkpoint()
        assert await samples(pool.app, "dragoman_open_requests") == {(): 1}
        assert await samples(pool.app, "dragoman_open_streams") == {(): 1}
        tasks.cancel_scope.cancel()
    await leave()
    assert await samples(pool.app, "dragoman_open_requests") == {(): 0}
    assert await samples(pool.app, "dragoman_open_streams") == {(): 0}
    requests = await samples(pool.app, "dragoman_requests_total")
    outcomes = {label for labels in requests for label in labels if label.startswith("outcome")}
    assert outcomes == {"outcome=cancelled", "outcome=client_left"}
    attempts = await samples(pool.app, "dragoman_attempts_total")
    assert attempts == {("account=a", "outcome=cancelled", "upstream=up"): 2}


async def test_a_store_that_does_not_work() -> None:
    store = ResilientStore(MemoryAccountStore(), MemoryAccountStore())
    app = Application(Gateway(Settings(server=ServerSettings(**ON)), accounts=store))
    assert await samples(app, "dragoman_account_store_up") == {(): 1}
    store._open = True
    assert await samples(app, "dragoman_account_store_up") == {(): 0}


async def test_a_full_disk_ends_no_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(metrics.Metrics, "count", full)
    assert (await gateway().call("/v1/messages", REQUEST)).status == 200
    assert "the metrics cannot be written: No space left on device" in caplog.text


async def test_the_process_and_the_build() -> None:
    app = create_app(Settings(server=ServerSettings(**ON)))
    ((labels, _),) = (await samples(app, "dragoman_build_info")).items()
    assert labels[0] == "backend=asyncio"
    assert await samples(app, "dragoman_workers") == {(): 1}
    assert await samples(app, "process_resident_memory_bytes")


# Labels.


async def test_there_is_a_largest_number_of_label_sets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "MAX_LABEL_SETS", 2)
    made = gateway(keys={name: {} for name in "abcd"})
    for name in "abcd":
        await made.call("/v1/messages", REQUEST, key=name)
    counts = await samples(made.app, "dragoman_requests_total")
    assert sorted(labels[0] for labels in counts) == [f"error={OTHER}", "key=a", "key=b"]
    assert sum(counts.values()) == 4
    warnings = [each.getMessage() for each in caplog.records if each.name == "dragoman.metrics"]
    assert len([each for each in warnings if "dragoman_requests_total has 2 label sets" in each]) == 1


def test_names_follow_the_conventions_of_prometheus() -> None:
    for spec in METRICS:
        assert re.fullmatch(r"dragoman_[a-z_]+", spec.name)
        assert (spec.kind is metrics.MetricKind.COUNTER) == spec.name.endswith("_total")
        counted = spec not in metrics._STATES
        assert bool(spec.over_workers) == (spec.kind is metrics.MetricKind.GAUGE and counted)
        assert not spec.help.endswith(".")


# Who may read it.


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer("drk_red")], ids=["none", "wrong", "client"])
async def test_it_needs_a_key_of_the_operators(headers: dict[str, str]) -> None:
    made = gateway(keys={"red": {}}, admin_key=Secret(ADMIN_KEY))
    client = await call(made.app, "/metrics", method="GET", headers=headers)
    assert client.status == 401
    assert b"dragoman_" not in client.body


async def test_the_metrics_key_opens_nothing_else() -> None:
    made = gateway(keys={"red": {}}, admin_key=Secret(ADMIN_KEY))
    for path in ("/admin/accounts", "/v1/models"):
        assert (await call(made.app, path, method="GET", headers=bearer(KEY))).status == 401


async def test_the_admin_key_opens_it_as_well() -> None:
    app = create_app(Settings(server=ServerSettings(secret=SECRET, admin_key=Secret(ADMIN_KEY))))
    assert (await call(app, "/metrics", method="GET", headers=bearer(ADMIN_KEY))).status == 200


async def test_without_a_key_there_is_nothing() -> None:
    client = await call(create_app(Settings()), "/metrics", method="GET", headers=bearer(KEY))
    assert client.status == 404
    assert b"/metrics needs server.metrics_key" in client.body
    assert b'"code":"unknown_url"' in client.body


async def test_without_the_extra_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    app = create_app(Settings(server=ServerSettings(admin_key=Secret(ADMIN_KEY))))
    client = await call(app, "/metrics", method="GET", headers=bearer(ADMIN_KEY))
    assert client.status == 404
    assert install_command("metrics").encode() in client.body
    assert b'"code":"unknown_url"' in client.body


async def test_the_form_is_negotiated() -> None:
    app = create_app(Settings(server=ServerSettings(**ON)))
    assert (await scrape(app)).headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    openmetrics = await scrape(app, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.body.endswith(b"# EOF\n")


async def test_a_scrape_has_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.requests")
    await scrape(create_app(Settings(server=ServerSettings(**ON))))
    assert not caplog.records


def test_states_of_accounts() -> None:
    assert Health().state(1).value == "ready"
    assert Health(cooldown_until=2).state(1).value == "cooling"
    assert Health(cooldown_until=2).state(2).value == "ready"
    assert Health(cooldown_until=2, disabled="why").state(1).value == "disabled"


# Reloads.


async def test_a_reload_counts_on_with_the_new_names() -> None:
    made = gateway()
    async with made.app.lifespan():
        await made.call("/v1/messages", REQUEST)
        before = made.app._served.gateway.settings
        upstream = replace(before.upstreams[0], models=("m", "new"))
        await made.app.reload(replace(before, upstreams=(upstream,)))
        for model in ("up/m", "up/new"):
            await made.call("/v1/messages", {**REQUEST, "model": model})
        assert list((await samples(made.app, "dragoman_attempts_total")).values()) == [3]
        tokens = await samples(made.app, "dragoman_tokens_total")
    found = {label for labels in tokens for label in labels if label.startswith("model")}
    assert found == {"model=m", "model=new"}


async def test_an_account_that_a_reload_removes_has_no_state() -> None:
    pool = accounts(a=good("Hello"), b=good("Hello"))
    await pool.store.apply(
        Change("up/a", lambda health: health.after_success(remaining=0.25).after_disabling("x"))
    )
    async with pool.app.lifespan():
        before = await samples(pool.app, "dragoman_account_state")
        assert before["account=a", "state=disabled", "upstream=up"] == 1
        settings = pool.app._served.gateway.settings
        await pool.app.reload(replace(settings, accounts=settings.accounts[1:]))
        after = await samples(pool.app, "dragoman_account_state")
        remaining = await samples(pool.app, "dragoman_account_remaining_ratio")
    assert {labels[0] for labels in after} == {"account=b"}
    assert remaining == {}


async def test_a_reload_does_not_switch_them_on() -> None:
    app = create_app(Settings())
    async with app.lifespan():
        await app.reload(Settings(server=ServerSettings(**ON)))
        client = await call(app, "/metrics", method="GET", headers=bearer(KEY))
    assert client.status == 404
    assert b"needs a restart" in client.body
