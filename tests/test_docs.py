"""Every example in the documentation and in the docstrings of the machines runs, and every link leads somewhere."""

import doctest
import json
import re
from pathlib import Path

import pytest

import dragoman
from dragoman import (
    PROTOCOLS,
    ErrorKind,
    EventReader,
    EventWriter,
    FanOut,
    Relay,
    RequestTranslator,
    ResponseTranslator,
    WireError,
)
from dragoman.codec import Endpoint, ProtocolSpec, UpstreamSpec

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")

EXAMPLES = [
    pytest.param(page, match.group(1), id=f"{page.name}-{number}")
    for page in PAGES
    for number, match in enumerate(_BLOCK.finditer(page.read_text("utf-8")))
]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_example_runs(page: Path, code: str) -> None:
    exec(compile(code, str(page), "exec"), {"__name__": "example"})


@pytest.mark.parametrize(
    "machine", [EventReader, EventWriter, FanOut, Relay, RequestTranslator, ResponseTranslator]
)
def test_the_example_of_a_machine_runs(machine: type) -> None:
    [example] = doctest.DocTestFinder(recurse=False).find(machine, globs=dict(vars(dragoman)))
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


SPECS = (ProtocolSpec, UpstreamSpec, Endpoint)


@pytest.mark.parametrize("name", sorted({name for spec in SPECS for name in spec.__struct_fields__}))
def test_every_field_of_a_spec_is_explained(name: str) -> None:
    assert f"\n| `{name}` | " in (ROOT / "docs" / "adding-a-protocol.md").read_text("utf-8")


@pytest.mark.parametrize("kind", ErrorKind)
def test_the_errors_of_the_simple_api_are_listed(kind: ErrorKind) -> None:
    status, body = PROTOCOLS["simple_chat"].write_error(WireError(kind, "m"), None)
    error = json.loads(body)["error"]
    page = (ROOT / "docs" / "simple-api.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and str(status) in line.split("|")[1]]
    assert any(f"`{error['type']}`" in row and f"`{error['code']}`" in row for row in rows), (status, error)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in _LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert missing == []
