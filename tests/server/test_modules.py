"""The modules of both packages: each is importable by its dotted name, no file is long, no class name occurs twice."""

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path

import dragoman
import dragoman_server

PACKAGES = (dragoman, dragoman_server)
FILES = {
    ".".join((package.__name__, *file.relative_to(root).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): file
    for package in PACKAGES
    for root in (Path(str(package.__file__)).parent,)
    for file in root.rglob("*.py")
}
# These two run something when they are imported.
MODULES = sorted(FILES.keys() - {"dragoman_server.__main__", "dragoman_server.asgi"})

MAX_LINES = 500


def test_no_value_hides_a_module() -> None:
    hidden = []
    for name in MODULES:
        package, _, attribute = name.rpartition(".")
        module = importlib.import_module(name)
        if package and getattr(importlib.import_module(package), attribute) is not module:
            hidden.append(name)
    assert hidden == []


def test_no_class_name_occurs_twice() -> None:
    places = defaultdict(list)
    for name, file in FILES.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_file_is_long() -> None:
    lines = {name: len(file.read_text("utf-8").splitlines()) for name, file in FILES.items()}
    assert {name for name, count in lines.items() if count > MAX_LINES} == set()


def test_a_docstring_that_lists_modules_lists_all_of_its_package() -> None:
    listed = {
        name: {each for row in rows for each in row.split(", ")}
        for name, file in FILES.items()
        if file.name == "__init__.py"
        and (rows := re.findall(r"^    (\w+(?:, \w+)*)  ", file.read_text("utf-8").split('"""')[1], re.M))
    }
    assert len(listed) > 3
    for package, modules in listed.items():
        expected = {name for parent, _, name in (each.rpartition(".") for each in FILES) if parent == package}
        assert modules == expected
