"""The application's start and end, in virtual time, on both kinds of event loop."""

from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.serving.lifespan import lifespan
from dragoman_server.serving.sockets import StartupError

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


def unexpected() -> None:
    raise AssertionError("it has failed while it served")


class Application:
    """start, end: what it sends; a number: it takes as many seconds; an exception: it raises it. None: it returns."""

    def __init__(self, start: Any = "complete", end: Any = "complete") -> None:
        self.steps = {"startup": start, "shutdown": end}
        self.seen: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["color"] = "blue"
        for stage, step in self.steps.items():
            assert (await receive())["type"] == f"lifespan.{stage}"
            self.seen.append(stage)
            if step is None:
                return
            if isinstance(step, Exception):
                raise step
            if isinstance(step, int):
                try:
                    await anyio.sleep(step)
                except BaseException:  # as Starlette does
                    await send({"type": f"lifespan.{stage}.failed", "message": "Traceback\nCancelled"})
                    raise
                step = "complete"
            message = "Traceback\n  line\nOSError: no database\n"
            await send({"type": f"lifespan.{stage}.{step}", "message": message})


async def test_it_starts_and_ends() -> None:
    app = Application(start=3, end=2)
    async with lifespan(app, 30, 5, unexpected) as state:
        assert anyio.current_time() == 3
        assert state == {"color": "blue"}
        assert app.seen == ["startup"]
    assert anyio.current_time() == 5
    assert app.seen == ["startup", "shutdown"]


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("failed", "OSError: no database"),
        (ValueError("a bug"), "ValueError: a bug"),
        (31, "it was not ready within 30 seconds"),
    ],
)
async def test_an_application_that_does_not_start(start: Any, reason: str) -> None:
    with pytest.raises(StartupError, match=f"^the application did not start: {reason}$"):
        async with lifespan(Application(start), 30, 5, unexpected):
            raise AssertionError("it has not started")


@pytest.mark.parametrize(
    ("last_line", "reason"),
    [
        ("some.package.StoreError: the store a.db: no such file", "the store a.db: no such file"),
        ("RuntimeError", "RuntimeError"),
        ("no.such.file: a reason", "a reason"),
        ("a text. with dots: here", "a text. with dots: here"),
    ],
)
async def test_a_reported_failure_is_its_text_and_not_logged_again(
    last_line: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # As Starlette does.
        await send({"type": "lifespan.startup.failed", "message": f"Traceback\n{last_line}\n"})
        raise RuntimeError(last_line)

    with pytest.raises(StartupError) as raised:
        async with lifespan(app, 30, 5, unexpected):
            raise AssertionError("it has not started")
    assert str(raised.value) == f"the application did not start: {reason}"
    assert caplog.records == []


async def test_a_shutdown_has_its_time() -> None:
    async with lifespan(Application(end=100), 30, 5, unexpected):
        pass
    assert anyio.current_time() == 5


@pytest.mark.parametrize("end", ["failed", ValueError("a bug"), None])
async def test_a_shutdown_that_fails_is_an_end_too(end: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with lifespan(Application(end=end), 30, 5, unexpected):
        pass
    assert anyio.current_time() == 0
    assert len(caplog.records) == (end is not None)


async def test_an_application_that_returns_has_nothing_to_start() -> None:
    async with lifespan(Application(start=None), 30, 5, unexpected):
        pass
    assert anyio.current_time() == 0


async def test_an_application_that_fails_while_it_serves() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.complete"})
        await anyio.sleep(3)
        raise ValueError("a bug")

    failed = anyio.Event()
    with pytest.raises(StartupError, match=r"^the application failed: ValueError: a bug$"):
        async with lifespan(app, 30, 5, failed.set):
            await failed.wait()
    assert anyio.current_time() == 3
