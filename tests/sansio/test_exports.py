"""The public names, what importing them costs, and who may import whom."""

# ruff: noqa: E501 -- the tables are read by row

import ast
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import dragoman
from dragoman.protocols import PROTOCOLS

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "sansio" / "dragoman"

# What the core may import besides its own modules. Nothing here reads a clock, draws a random number, does
# I/O, logs or knows an event loop.
ALLOWED = frozenset(
    {
        "__future__",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "email",  # for the form of dates in HTTP, and imported when one comes
        "enum",
        "functools",
        "hashlib",
        "hmac",
        "itertools",
        "json",
        "math",
        "msgspec",
        "operator",
        "re",
        "typing",
    }
)

# Modules that `import dragoman` must not bring along, by whatever way.
UNWANTED = frozenset(
    {
        *("asyncio", "concurrent", "ctypes", "dataclasses", "email", "http", "json", "logging"),
        *(
            "multiprocessing",
            "pathlib",
            "random",
            "secrets",
            "socket",
            "ssl",
            "subprocess",
            "tempfile",
            "threading",
            "urllib",
        ),
    }
)


# Names

# The public modules, `dragoman` itself first.
PUBLIC = [
    "dragoman",
    *sorted(
        f"dragoman.{path.stem}"
        for path in CORE.iterdir()
        if not path.stem.startswith("_") and path.stem != "py"
    ),
]
# Imported while tests are collected: what runs on import belongs to no test.
MODULES = [importlib.import_module(name) for name in PUBLIC]

# What one imports from `dragoman`. Everything else is in its submodules.
TOP = [
    "NEED_DATA",
    "PROTOCOLS",
    "UPSTREAMS",
    "Capabilities",
    "ErrorKind",
    "EventReader",
    "EventWriter",
    "FanOut",
    "Keepalive",
    "Ledger",
    "LocalProtocolError",
    "Loss",
    "LossCode",
    "LossPolicy",
    "Outcome",
    "ProtocolError",
    "Relay",
    "RemoteProtocolError",
    "RequestHead",
    "RequestRefused",
    "RequestTranslator",
    "ResponseMachine",
    "ResponseTranslator",
    "Signer",
    "StopReason",
    "TranslatedRequest",
    "Usage",
    "WireError",
    "estimate_tokens",
    "peek",
    "translate_error",
]


def test_the_names_at_the_top() -> None:
    assert dragoman.__all__ == TOP


def test_every_public_module_imports_and_is_explained(subtests: pytest.Subtests) -> None:
    for imported in MODULES:
        with subtests.test(imported=imported):
            assert imported.__doc__
            for name in imported.__all__:
                value = getattr(imported, name)
                assert not isinstance(value, type | FunctionType) or value.__doc__, name
            assert imported.__name__ == "dragoman" or f"    {imported.__name__} " in dragoman.__doc__


def exported() -> Iterator[object]:
    for module in MODULES:
        yield from (getattr(module, name) for name in module.__all__)


def callables(value: object) -> Iterator[object]:
    """Return the parts of a public object that have a signature: itself, its fields, its public methods."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, type):
        yield value
        for name, member in vars(value).items():
            if name == "__init__" or not name.startswith("_"):
                member = member.fget if isinstance(member, property) else member
                if isinstance(member, FunctionType):
                    yield member


def types_in(hint: object) -> Iterator[type]:
    """All classes that a type is made of."""
    if get_origin(hint) is Literal:
        return
    for inner in get_args(hint):
        for each in inner if isinstance(inner, list) else [inner]:
            yield from types_in(each)
    if isinstance(hint, type) and get_origin(hint) is None:
        yield hint


def test_every_type_of_a_public_signature_is_public() -> None:
    public = {id(value) for value in exported()}
    hidden = {
        f"{getattr(each, '__qualname__', each)}: {kind.__qualname__}"
        for value in exported()
        for each in callables(value)
        for name, hint in get_type_hints(each).items()
        if not name.startswith("_")
        for kind in types_in(hint)
        if kind.__module__.startswith("dragoman") and id(kind) not in public
    }
    assert hidden == set()


def test_the_registry() -> None:
    assert {name: spec.name for name, spec in PROTOCOLS.items()} == {name: name for name in PROTOCOLS}
    folders = {path.parent.name for path in (CORE / "protocols").glob("[!_]*/__init__.py")}
    assert set(PROTOCOLS) == folders


# The price of an import


def python(code: str, cache: Path) -> str:
    """The output of a fresh interpreter that keeps its byte code in its own place."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    env["PYTHONPYCACHEPREFIX"] = str(cache)
    env["PYTHONPATH"] = str(CORE.parent)
    return subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_an_import_is_quick(tmp_path: Path) -> None:
    """In processor time of one and the same process, beside msgspec's: machines differ, and are busy."""
    steps = ("import dragoman", "import msgspec", "from dragoman import Ledger")
    clock = "times.append(time.process_time())"
    code = f"import time; times = []; {clock}; {f'; {clock}; '.join(steps)}; {clock}; print(*times)"
    python(code, tmp_path)  # compiles
    ratios = []
    for _ in range(5):
        start, package, msgspec, names = map(float, python(code, tmp_path).split())
        ratios.append(((package - start) / (msgspec - package), (names - msgspec) / (msgspec - start)))
    package_ratio, names_ratio = map(min, zip(*ratios, strict=True))
    assert package_ratio < 1.2
    assert names_ratio < 2  # 1.4 on CPython 3.11, 1.7 on 3.13


def test_names_are_imported_when_they_are_used(tmp_path: Path) -> None:
    listing = "print(*(each for each in sys.modules if each.startswith('dragoman')))"
    assert python(f"import sys, dragoman; {listing}", tmp_path).split() == ["dragoman"]
    assert "dragoman._engine.request" in python(f"import sys, dragoman; dragoman.peek; {listing}", tmp_path)
    assert set(dragoman.__all__) <= set(dir(dragoman))
    with pytest.raises(AttributeError, match="module 'dragoman' has no attribute 'pick'"):
        dragoman.pick  # type: ignore[attr-defined]  # noqa: B018


def test_an_import_brings_nothing_unwanted(tmp_path: Path) -> None:
    listing = "import sys; print(*sys.modules)"
    before = set(python(f"import msgspec; {listing}", tmp_path).split())
    after = set(python(f"import msgspec, dragoman._api; {listing}", tmp_path).split())
    brought = {name.partition(".")[0] for name in after - before} - {"dragoman"}
    assert not brought & UNWANTED
    assert brought <= sys.stdlib_module_names


# Architecture


def test_imports_are_on_the_list() -> None:
    """Modules of the list, own modules by their full name, and nothing by name at run time."""
    allowed = ALLOWED | {"dragoman"}
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.level, (node.module or "").partition(".")[0] in allowed) == (0, True), path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {
                    "__import__",
                    "open",
                    "print",
                    "input",
                    "eval",
                    "exec",
                    "breakpoint",
                }


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("lint-imports")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "sansio"), str(root / "server")])}
    return subprocess.run(
        [command, "--no-cache", "--config", str(root / "pyproject.toml")],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_contracts_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


# Module -> a forbidden import, and the chain of imports that the report must show.
FORBIDDEN = {
    "sansio/dragoman/_wire/exceptions.py": ("import time", "dragoman._wire.exceptions -> time"),
    "sansio/dragoman/_wire/sse.py": ("def late():\n    from os import path", "dragoman._wire.sse -> os"),
    "sansio/dragoman/_wire/json.py": ("import dragoman_server.cli.commands", "dragoman._wire.json -> dragoman_server.cli.commands"),
    "sansio/dragoman/_ir/events.py": ("from dragoman._engine.request import Outcome", "dragoman._ir.events -> dragoman._engine.request"),
    "sansio/dragoman/_engine/relay.py": ("from dragoman.protocols.openai_chat import SPEC", "dragoman._engine.relay -> dragoman.protocols.openai_chat"),
    "sansio/dragoman/protocols/openai_chat/tap.py": (
        "from dragoman.protocols.anthropic_messages import SPEC",
        "dragoman.protocols.openai_chat.tap -> dragoman.protocols.anthropic_messages",
    ),
    "sansio/dragoman/protocols/openai_responses/tap.py": (
        "from dragoman._transforms.tools import fit_tools",
        "dragoman.protocols.openai_responses.tap -> dragoman._transforms.tools",
    ),
    "sansio/dragoman/_nowhere.py": ("", "_nowhere"),  # a module without a layer
    "server/dragoman_server/settings/server.py": ("from dragoman_server.gateway import app", "dragoman_server.settings.server -> dragoman_server.gateway"),
    "server/dragoman_server/http/request.py": ("from dragoman._ir.events import Event", "dragoman_server.http.request -> dragoman._ir.events"),
    "server/dragoman_server/serving/run.py": ("from dragoman_server.accounts import limits", "dragoman_server.serving.run -> dragoman_server.accounts.limits"),
    "server/dragoman_server/policy/attempts.py": ("import time", "dragoman_server.policy.attempts -> time"),
}  # fmt: skip


def test_the_contracts_catch_what_they_forbid(tmp_path: Path) -> None:
    for name in ("sansio", "server", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    for module, (line, _) in FORBIDDEN.items():
        with (tmp_path / module).open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    for line, chain in FORBIDDEN.values():
        assert chain in text, line
    assert "Contracts: 0 kept" in text
