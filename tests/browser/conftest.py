"""A gateway with requests of each kind, and a real Chromium that has its page open."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from devtools import Chromium, Page
from page_rig import ADMIN_KEY, SCREENSHOTS, Rig

collect_ignore = [] if SCREENSHOTS else ["test_pictures.py"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, browser: Chromium) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("page"))
    with rig.upstream, rig.gateway:
        rig.gateway.ready()
        try:
            yield rig
        finally:
            rig.release.set()


@pytest.fixture
def open_page(rig: Rig, browser: Chromium) -> Iterator[Callable[..., Page]]:
    """Open the page with the admin key. Its console must say nothing but what the test removes from `problems`.

    script: runs before those of the page. kept: it has the requests of other tests, too.
    """
    pages: list[Page] = []

    def open_page(view: str = "live", script: str = "", *, kept: bool = False, **options: Any) -> Page:
        page = browser.open("about:blank", **options)
        script = f"sessionStorage.setItem('dragoman.admin_key', '{ADMIN_KEY}'); {{{script}}}"
        if not kept:
            script += "const all = fetch; fetch = (url, how) => all(url.replace('?kept=true', ''), how);"
        page.call("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        page.go(f"{rig.url}#/{view}")
        page.wait_for("document.querySelector('.feed.open')")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
        assert page.problems == []
