"""docs/clients: a page for each client, with the variables that `dragoman run` sets, and examples that are valid."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from sdk_clients.processes import Gateway, Simulator

from dragoman_server.cli.clients import CLIENTS

FOLDER = Path(__file__).parents[3] / "docs" / "clients"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
INDEX = (FOLDER / "README.md").read_text("utf-8")

# The page of each row of the table.
PAGE_OF = {
    "claude": "claude-code.md",
    "codex": "codex.md",
    "opencode": "opencode.md",
    "gemini": "gemini-cli.md",
    "copilot": "copilot-cli.md",
    "aider": "aider.md",
}


def examples(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_listed_and_says_if_it_was_tried(page: Path) -> None:
    assert f"]({page.name}) |" in INDEX
    text = " ".join(page.read_text("utf-8").split())
    assert re.search(r"[Tt]ried with .* on 2\d{3}-\d\d-\d\d| Not tried: ", text)


def test_each_client_of_the_table_has_a_page_with_its_command() -> None:
    assert set(PAGE_OF) == set(CLIENTS)
    for name, page in PAGE_OF.items():
        assert f"dragoman run -- {name}\n" in (FOLDER / page).read_text("utf-8")


@pytest.mark.parametrize("name", ["claude", "opencode", "gemini", "copilot", "aider"])
def test_a_page_names_the_variables_that_are_set(name: str) -> None:
    text = (FOLDER / PAGE_OF[name]).read_text("utf-8")
    missing = [each for each in CLIENTS[name].variables if each not in text]
    assert missing in ([], ["DRAGOMAN_KEY"], ["AIDER_SHOW_MODEL_WARNINGS"])


# The other pages with Python need packages that are not among the development tools.
@pytest.mark.process
def test_examples_of_the_sdks_run(tmp_path: Path) -> None:
    with Simulator().ready() as simulator, Gateway(tmp_path, simulator, "asyncio").ready() as gateway:
        for page in ("openai-sdk.md", "anthropic-sdk.md"):
            (code,) = examples(FOLDER / page, "python")
            for here, there in (("http://127.0.0.1:8080", gateway.url), ("local/qwen3", "messages/echo")):
                assert here in code
                code = code.replace(here, there)
            names: dict[str, Any] = {"__name__": "example"}
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, page, "exec"), names)
            names["client"].close()
            assert set(printed.getvalue().splitlines()) == {"Hello"}
