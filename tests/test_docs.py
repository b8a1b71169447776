"""Examples in the documentation and in docstrings run, and its links, anchors and file names exist."""

import doctest
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import bench_figures
import bench_plot
import click
import command_page
import man_page
import map_picture
import package_map
import page_tables
import public_names
import pytest
import site_contents

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
from dragoman._ir.wrapped_signatures import WRAPPED_PREFIX
from dragoman.codec import Endpoint, ProtocolSpec, UpstreamSpec
from dragoman_server.accounts.stores.sqlite import FILE_FORMAT as account_file
from dragoman_server.accounts.stores.valkey import _PREFIX as account_prefix
from dragoman_server.cli.commands import main
from dragoman_server.config.loader import load
from dragoman_server.responses.stores.sqlite import FILE_FORMAT as response_file
from dragoman_server.usage.stores.sqlite import FILE_FORMAT as usage_file
from dragoman_server.usage.stores.valkey import _PREFIX as usage_prefix

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCED = re.compile(r"^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
_ANCHOR = re.compile(r"\]\((?!https?://)([^)#]*)#([^)]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# A path from the root, or a module.
_FILE = re.compile(r"(?<![\w/.])(?:(?:sansio|server|tests|docs)/[\w/.]+|[\w/]+\.py\b)")
# What the paths in pages for contributors are below.
FOLDERS = (
    ROOT,
    ROOT / "sansio" / "dragoman",
    ROOT / "server" / "dragoman_server",
    *(ROOT / "sansio" / "dragoman" / "protocols").iterdir(),
)

# Examples for clients need a gateway: tests/server/docs/test_clients.py.
EXAMPLES = [
    pytest.param(page, code, id=f"{page.name}-{number}")
    for page in PAGES
    if page.parent.name != "clients"
    for number, (language, code) in enumerate(_FENCED.findall(page.read_text("utf-8")))
    if language == "python"
]


def test_ci_runs_the_command_that_the_readme_names() -> None:
    """`make run` and `make test` are the two commands of a clone."""
    readme, ci = ((ROOT / name).read_text("utf-8") for name in ("README.md", ".ci/run"))
    assert {"run", "test"} <= set(re.findall(r"\bmake ([a-z-]+)", readme))
    assert re.findall(r"^make -C \S+ ([a-z-]+)$", ci, re.MULTILINE) == ["test"]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_example_runs(page: Path, code: str) -> None:
    exec(compile(code, str(page), "exec"), {"__name__": "example"})


# What a configuration needs that is a part of one: the text before it on its page, say.
UPSTREAM = '[[upstreams]]\nname = "local"\nprotocol = "openai_chat"\nbase_url = "http://127.0.0.1:9000"\n'
WHOLE = {
    "accounts.md": lambda text: (
        text if "[[upstreams]]" in text else f"{UPSTREAM.replace('local', 'anthropic')}{text}"
    ),
    "adding-a-protocol.md": lambda text: text.replace('"NAME"', '"openai_chat"'),
    "claude-code.md": lambda text: UPSTREAM + text,
}
# Not parsed here, and why.
UNPARSED = {
    "": "what is printed, and diagrams; commands in it begin with $",
    "js": "no parser is among the development tools",
    "mermaid": "made by docs/_generate/package_map.py",
    "text": "what is printed; tests/server/docs/test_tutorial.py compares the tutorial's",
    "ts": "no parser is among the development tools; the page says with which version it was tried",
    "yaml": "no parser is among the development tools; the page says with which version it was tried",
}
# `dragoman` where a command stands, and its arguments; texts for stdin and the ends of continued lines are none.
_COMMAND = re.compile(r"(?:^|[|;&(] *)(?:\w+=\S+ )*(?:\S+/)?dragoman ([^|;&#>)\n]*)", re.MULTILINE)
_NOT_COMMANDS = re.compile(r"<<'END'.*?^END$|\\\n", re.MULTILINE | re.DOTALL)


def check_toml(page: Path, text: str, directory: Path) -> None:
    if page.name in ("codex.md", "mistral-vibe.md"):
        tomllib.loads(text)  # the client's own configuration
        return
    file = directory / "dragoman.toml"
    references = set(re.findall(r"\$\{(?:file:)?([^}]+)\}", text))
    values = {name: re.sub(r"\W", "-", name).ljust(32, "x") for name in references}
    text = re.sub(r"\$\{file:([^}]+)\}", lambda match: values[match[1]], text)
    file.write_text(WHOLE.get(page.name, str)(text), "utf-8")
    assert load(environ={"DRAGOMAN_SECRET": "x" * 32, **values}, path=str(file)).warnings == ()


def check_sh(page: Path, text: str, _: Path) -> None:
    """The shell can parse it, and the command line of each `dragoman` in it is one that the command takes."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    for arguments in _COMMAND.findall(_NOT_COMMANDS.sub("", text)):
        parse_command(shlex.split(arguments))


def parse_command(arguments: list[str]) -> None:
    """Parse a command line as `dragoman` does, and run nothing. The files that it reads are made first."""
    for name in (Path(each) for each in arguments if each.endswith(".json")):
        name.parent.mkdir(exist_ok=True)
        name.touch()
    with ExitStack() as stack:
        context = stack.enter_context(main.make_context("dragoman", arguments))
        while isinstance(context.command, click.Group):
            rest = [*context._protected_args, *context.args]
            name, command, rest = context.command.resolve_command(context, rest)
            context = stack.enter_context(command.make_context(name, rest, parent=context))


CHECKS: dict[str, Callable[[Path, str, Path], object]] = {
    "json": lambda page, text, directory: json.loads(text),
    "python": lambda page, text, directory: compile(text, str(page), "exec"),
    "sh": check_sh,
    "toml": check_toml,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_code_block_is_one_of_its_language(
    page: Path, tmp_path: Path, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (language, text) in enumerate(_FENCED.findall(page.read_text("utf-8"))):
        with subtests.test(language=language, number=number):
            if language in UNPARSED:
                commands = re.findall(r"^\$ (?:.*\| )?dragoman (.*)", text, re.MULTILINE)
                for arguments in commands:
                    parse_command(shlex.split(arguments))
            else:
                CHECKS[language](page, text, tmp_path)


@pytest.mark.parametrize(
    "machine", [EventReader, EventWriter, FanOut, Relay, RequestTranslator, ResponseTranslator]
)
def test_the_example_of_a_machine_runs(machine: type) -> None:
    [example] = doctest.DocTestFinder(recurse=False).find(
        machine, globs={name: getattr(dragoman, name) for name in dragoman.__all__}
    )
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


SPECS = (ProtocolSpec, UpstreamSpec, Endpoint)


def test_every_field_of_a_spec_is_explained() -> None:
    page = (ROOT / "docs" / "adding-a-protocol.md").read_text("utf-8")
    fields = {name for spec in SPECS for name in spec.__struct_fields__}
    assert [name for name in sorted(fields) if f"\n| `{name}` | " not in page] == []


def test_the_errors_of_the_simple_api_are_listed() -> None:
    page = (ROOT / "docs" / "simple-api.md").read_text("utf-8")
    for kind in ErrorKind:
        status, body = PROTOCOLS["simple_chat"].write_error(WireError(kind, "m"), None)
        error = json.loads(body)["error"]
        rows = [
            line for line in page.splitlines() if line.startswith("| ") and str(status) in line.split("|")[1]
        ]
        listed = any(f"`{error['type']}`" in row and f"`{error['code']}`" in row for row in rows)
        assert listed, (kind, status, error)


def test_the_page_on_upgrading_has_the_versions_of_the_stores() -> None:
    page = (ROOT / "docs" / "upgrading.md").read_text("utf-8")
    for row in (
        f"| account store, `sqlite` | {account_file.version} |",
        f"| account store, `valkey` | `{account_prefix}` |",
        f"| response store, `sqlite` | {response_file.version} |",
        f"| usage store, `sqlite` | {usage_file.version} |",
        f"| usage store, `valkey` | `{usage_prefix}` |",
        f"| `{WRAPPED_PREFIX}` |",
    ):
        assert row in page


def test_the_examples_import_public_names_only() -> None:
    for page in PAGES:
        for module, names in re.findall(
            r"^from (dragoman\S*) import ([\w, ]+)$", page.read_text("utf-8"), re.M
        ):
            modules = {each.removeprefix("dragoman.") for each in public_names.MODULES}
            assert set(names.split(", ")) <= {*public_names.names(module), *modules}, page.name


def test_links_are_files() -> None:
    missing = [
        f"{page.name}: {link}"
        for page in PAGES
        for link in _LINK.findall(page.read_text("utf-8"))
        if not (page.parent / link).exists()
    ]
    assert missing == []


def test_anchors_are_headings() -> None:
    missing = [
        f"{page.name}: {link}#{anchor}"
        for page in PAGES
        for link, anchor in _ANCHOR.findall(page.read_text("utf-8"))
        if anchor not in _anchors((page.parent / link) if link else page)
    ]
    assert missing == []


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = _HEADING.findall(page.read_text("utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_commands_of_make_are_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE))
        assert named - targets == set(), page.name


def test_make_help_has_a_line_for_each_target() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    done = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert sorted(phony.split()) == sorted(target for _, target, _ in lines)
    assert all(text for _, _, text in lines)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "docs/testing.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    named = [name for code in re.findall(r"`([^`\n]+)`", text) for name in _FILE.findall(code)]
    assert len(named) > 5
    assert [name for name in named if not any((folder / name).exists() for folder in FOLDERS)] == []


def test_every_page_has_one_place_in_the_site() -> None:
    """docs/README.md lists it, or the README.md of its folder does."""
    placed = [name for parts in site_contents.contents().values() for _, names in parts for name in names]
    assert sorted([site_contents.INDEX, *placed]) == site_contents.pages()


def test_the_tables_in_pages_are_current(subtests: pytest.Subtests) -> None:
    # If this fails, run `make docs`.
    for page in page_tables.PAGES:
        with subtests.test(page=page.name):
            text = page.read_text("utf-8")
            assert page_tables.page(text) == text


def test_the_site_draws_the_map() -> None:
    page = map_picture.with_pictures(package_map.PAGE.read_text("utf-8"))
    picture = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    arrows = [arrow.text for arrow in picture.iter("title")]
    assert "proxying imports accounts" in arrows
    assert len(arrows) == len(re.findall("-->|-.->", package_map.PAGE.read_text("utf-8")))
    assert {row.text for row in picture.iter("text")} > {"dragoman_server", "__main__", "_wire"}
    assert "mermaid" not in page


@pytest.mark.parametrize("generated", [command_page, man_page, package_map])
def test_a_page_that_is_made_is_current(generated: ModuleType) -> None:
    # If this fails, run `make docs`.
    assert generated.page() == generated.PAGE.read_text("utf-8")


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_man_page_has_no_mistake() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(man_page.PAGE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_the_plot_is_current() -> None:
    # If this fails, run `make bench-plot`.
    assert bench_plot.plot(bench_figures.read()) == bench_plot.PLOT.read_text("utf-8")
