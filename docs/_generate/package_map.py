"""Draw the map of the packages from their imports, as a Mermaid flowchart in map.md.

A node is a package, or a module next to the packages. The layers in pyproject.toml give the direction: arrows that
follow from others are left out, and those against it are dashed and listed with their modules. Imports for type
checkers only do not count.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "map.md"
_SOURCES = {"dragoman_server": "server", "dragoman": "sansio"}


def _order(top: str) -> list[str]:
    """Return the packages of a distribution's package in the order of its layers in pyproject.toml."""
    tools = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    contracts = tools["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [top])
    return [name.strip() for layer in layers for name in layer.split("|")]


# The modules that give other modules' names to embedders are one node with `dragoman` itself.
_FACADE = {"_api", "events", "document", "errors", "sse", "jsontext"}
ORDER = {
    "dragoman_server": _order("dragoman_server"),
    "dragoman": [
        "testing",
        "dragoman",
        *(each for each in _order("dragoman") if each not in {"testing", *_FACADE}),
    ],
}
_NODES = [name if name == top else f"{top}.{name}" for top, names in ORDER.items() for name in names]
_PLACES = {node: place for place, node in enumerate(_NODES)}

_HEAD = """\
# The map

`make map` draws this page from the imports (`docs/_generate/package_map.py`), and a test fails when it is out of date.
An arrow means "imports". Arrows that follow from others are left out; dashed ones run against the order. Below the
drawing each package has a line; [architecture.md](architecture.md) says more, and follows a request through them.
"""


def page() -> str:
    """Return the text of map.md."""
    graph = grimp.build_graph(*ORDER, exclude_type_checking_imports=True, cache_dir=None)
    # That a package imports its own root is its version.
    modules = graph.modules - {"dragoman_server"}
    with_order: dict[str, set[str]] = {node: set() for node in _NODES}
    against: dict[tuple[str, str], list[str]] = {}
    for module in modules:
        start = _node(module)
        ends = {_node(each) for each in graph.find_modules_directly_imported_by(module) & modules}
        for end in ends - {start}:
            if _PLACES[start] < _PLACES[end]:
                with_order[start].add(end)
            else:
                against.setdefault((start, end), []).append(module)
    lines = ["```mermaid", "flowchart TD"]
    for top, names in ORDER.items():
        lines.append(f"  subgraph {top}_package[{top}]")
        lines += [f'    {_id(name if name == top else f"{top}.{name}")}["{name}"]' for name in names]
        lines.append("  end")
    lines += [f"  {_id(start)} --> {_id(end)}" for start, end in _direct(with_order)]
    lines += [f"  {_id(start)} -.-> {_id(end)}" for start, end in sorted(against)]
    lines.append("```")
    if against:
        lines += ["", "These modules import against the order:", ""]
        for (_, end), importers in sorted(against.items()):
            lines.append(f"- {', '.join(f'`{each}`' for each in sorted(importers))} from `{end}`")
    for top, names in ORDER.items():
        lines += ["", f"| in `{top}` | what it holds |", "|---|---|"]
        lines += [f"| `{name}` | {_gloss(top, name)} |" for name in names]
    return "\n".join([_HEAD, *lines, ""])


def _gloss(top: str, name: str) -> str:
    """Return the first sentence of the docstring of a package or module."""
    place = _ROOT / _SOURCES[top] / top / (name if name != top else "")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].removesuffix(".")


def _node(module: str) -> str:
    top, *rest = module.split(".")
    return top if not rest or (top == "dragoman" and rest[0] in _FACADE) else f"{top}.{rest[0]}"


def _direct(graph: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Yield the arrows of an acyclic graph that do not follow from others."""
    reach: dict[str, set[str]] = {}
    for node in reversed(_NODES):
        reach[node] = graph[node].union(*(reach[end] for end in graph[node]))
    for node, ends in graph.items():
        indirect: set[str] = set().union(*(reach[end] for end in ends))
        yield from ((node, end) for end in sorted(ends - indirect))


def _id(node: str) -> str:
    return node.replace(".", "__")  # Mermaid takes no dots


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
