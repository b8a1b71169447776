"""Pictures of each view, light and dark, narrow and wide, for the documentation and for people to look at."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from devtools import Page
from edge import MESSAGES_PATH
from page_rig import SCREENSHOTS, Rig, usage_script

pytestmark = pytest.mark.process


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pictures(rig: Rig, open_page: Callable[..., Page], width: int, dark: bool) -> None:
    folder = Path(SCREENSHOTS or "")
    folder.mkdir(parents=True, exist_ok=True)
    rig.reset()
    page = open_page(width=width, height=900, dark=dark)
    page.click(".filters label:last-of-type input")
    time.sleep(0.5)
    held = [rig.hold(f"hold {number}") for number in range(2)]
    for number in range(6):
        rig.post(f"Hello {number}")
    _, retried = rig.post("cool down")
    _, lossy = rig.post("Hello", MESSAGES_PATH, max_tokens=99, container="c1", metadata={"user_id": "u"})
    rig.post("be wrong")
    time.sleep(2.5)
    suffix = f"{'dark' if dark else 'light'}-{width}.png"

    def take(name: str) -> None:
        page.screenshot(folder / f"{name}-{suffix}")

    take("live")
    page.run("document.querySelector('.filters label input').click()")
    time.sleep(0.3)
    take("sessions")
    for name, id in (("retried", retried), ("request", lossy)):
        page.run(f"location.hash = '#/requests/{id}'")
        time.sleep(1)
        take(name)
        page.run("document.querySelector('main').scrollTo(0, 600)")
        time.sleep(0.3)
        take(f"{name}-below")
    for view in ("recordings", "upstreams", "configuration"):
        page.run(f"location.hash = '#/{view}'")
        time.sleep(1)
        take(view)
    page.run("location.hash = '#/playground'")
    page.wait_for("document.querySelector('datalist option')")
    page.click(".buttons button")
    page.wait_for("document.querySelector('.step')")
    page.click(".buttons button.main")
    page.wait_for("document.querySelector('.answer-text').innerText")
    take("playground")
    page.run(usage_script())
    page.run("location.hash = '#/usage'")
    page.wait_for("document.querySelectorAll('.plot canvas').length === 4")
    time.sleep(0.5)
    take("usage")
    rig.release.set()
    for thread in held:
        thread.join()
