"""The wheel: its files and dependencies; and the checkout's environment is the locked one."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command.process import Server
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "tests" / "tools" / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def build(tree: Path, target: Path, umask: int = 0o022, **environ: str) -> dict[str, Path]:
    """The files of a release, by the end of their names."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    env = environment | environ
    subprocess.run(command, cwd=tree, env=env, umask=umask, check=True, capture_output=True, timeout=120)
    return {path.suffix: path for path in target.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(ROOT, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built: dict[str, Path]) -> zipfile.ZipFile:
    return zipfile.ZipFile(built[".whl"])


@pytest.mark.promise("S17")
def test_the_wheel_holds_both_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    data = f"dragoman-{PROJECT['project']['version']}.data"
    assert tops == {"dragoman", "dragoman_server", data}
    expected = [f"{data}/data/share/man/man1/dragoman.1"]
    assert [name for name in wheel.namelist() if name.startswith(data)] == expected
    assert {"dragoman/py.typed", "dragoman_server/py.typed"} <= set(wheel.namelist())
    assert not any(name.endswith(".pth") for name in wheel.namelist())


@pytest.mark.promise("S17")
def test_two_builds_give_the_same_bytes(built: dict[str, Path], tmp_path: Path) -> None:
    """The second one is of the sdist, elsewhere, with other times, permissions, zone and order of hashes."""
    with tarfile.open(built[".gz"]) as sdist:
        # Python 3.11.3 and older have no filters.
        sdist.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    [tree] = tmp_path.iterdir()
    for path in tree.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = build(tree, tmp_path / "again", 0o077, TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    expected = {path.name: path.read_bytes() for path in built.values()}
    assert {path.name: path.read_bytes() for path in again.values()} == expected


def test_the_wheel_holds_every_module_and_the_page(wheel: zipfile.ZipFile) -> None:
    modules = {
        path.relative_to(root).as_posix()
        for root in (ROOT / "sansio", ROOT / "server")
        for path in root.rglob("*")
        if path.suffix == ".py" or (path.is_file() and "ui" in path.parent.relative_to(root).parts)
    }
    assert {
        name for name in wheel.namelist() if name.endswith(".py") or name.startswith("dragoman_server/ui/")
    } == modules


def test_a_plain_install_needs_only_msgspec() -> None:
    plain = [each for each in requires("dragoman") or () if "extra ==" not in each]
    assert [each.split(">")[0] for each in plain] == ["msgspec"]


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


@pytest.mark.promise("S17")
def test_the_gateway_has_at_most_ten_direct_dependencies_and_each_is_argued() -> None:
    optional = PROJECT["project"]["optional-dependencies"]
    gateway = names(PROJECT["project"]["dependencies"]) | names(optional["server"])
    bounded = {"h2", "hpack", "hyperframe"}  # they come with hypercorn in any case
    assert bounded <= gateway & names([*(requires("hypercorn") or ()), *(requires("h2") or ())])
    assert len(gateway - bounded) <= 10
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    rows = re.findall(r"^\| (\S+) \|", page, re.MULTILINE)
    assert gateway.union(*map(names, optional.values())) <= set(map(canonicalize_name, rows))


def test_developers_get_what_the_extras_bring() -> None:
    """Tests of an extra that is not installed are skipped, so they would not fail."""
    optional, dev = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]["dev"]
    clouds = {"azure", "bedrock", "vertex"}
    assert set(optional) == {"server", "grammar", "metrics", "otel", "socks", "top", "valkey", *clouds}
    assert all(each in dev for name in optional.keys() - {"server"} for each in optional[name])
    assert "--extra server --group dev" in (ROOT / "Makefile").read_text("utf-8")


# -- the locks ---------------------------------------------------------------------------------------------


class Lock(dict[str, Version]):
    """The versions of a lock, by name; `hashes` likewise."""

    def __init__(self, name: str) -> None:
        self.text = (LOCKS / f"{name}.txt").read_text("utf-8")
        self.hashes: dict[str, set[str]] = {}
        lines = [
            line for line in self.text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")
        ]
        for line in lines:
            locked, *hashes = line.split(" --hash=")
            requirement = Requirement(locked)
            [specifier] = requirement.specifier
            assert specifier.operator == "==", line
            self[canonicalize_name(requirement.name)] = Version(specifier.version)
            self.hashes[canonicalize_name(requirement.name)] = {each.strip() for each in hashes}


@pytest.mark.promise("S17")
@pytest.mark.parametrize("name", ["all", "server", "dev", "docs", "release"])
def test_a_lock_has_hashes_and_no_addresses(name: str) -> None:
    lock = Lock(name)
    for package, hashes in lock.hashes.items():
        assert hashes, package
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), package
    assert not re.search(r"https?:|file:|-index|--find-links|(?<![\w.-])/", lock.text)


@pytest.mark.promise("S17")
def test_make_installs_what_has_a_hash_and_nothing_else() -> None:
    made = (ROOT / "Makefile").read_text("utf-8")
    installs = re.findall(
        r"^(?!PIP_INSTALL|LOCKED).*(?:pip install|PIP_INSTALL|LOCKED).*", made, re.MULTILINE
    )
    assert len(installs) == 6
    for line in installs:
        assert "$(LOCKED)/" in line or "--no-index --no-deps --no-build-isolation" in line, line
    assert re.search(r"^LOCKED := .* --require-hashes --only-binary :all: ", made, re.MULTILINE)


def make_run(tree: Path, python: str, **environ: str) -> tuple[int, str]:
    """Return the exit code of `make run` in a tree without an environment, and its last line but make's own."""
    (tree / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tree / "pyproject.toml").touch()
    shutil.copytree(LOCKS, tree / LOCKS.relative_to(ROOT))
    done = subprocess.run(
        ["make", "--no-print-directory", "run", f"PYTHON={python}"],
        cwd=tree,
        env={"PATH": os.environ["PATH"], **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    *lines, of_make = done.stderr.splitlines()
    assert of_make.startswith("make: ***")
    return done.returncode, lines[-1]


@pytest.mark.parametrize(
    ("version", "found"), [("echo Python 3.10.13", "Python 3.10.13"), ("exit 127", "not there")]
)
def test_make_names_the_python_that_is_needed(tmp_path: Path, version: str, found: str) -> None:
    old = tmp_path / "python3.10"
    old.write_text(f'#!/bin/sh\n[ "$1" = --version ] || exit 1\n{version}\n')
    old.chmod(0o700)
    status, line = make_run(tmp_path, str(old))
    assert status == 2
    assert line.startswith("Python 3.11 or newer with the modules venv and ensurepip is needed")
    assert f"{old} is {found}: install it, or name one with make PYTHON=" in line
    assert not (tmp_path / ".venv").exists()


def test_make_says_what_to_do_without_an_index(tmp_path: Path) -> None:
    environ = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    status, line = make_run(tmp_path, sys.executable, **environ)
    assert status == 2
    assert "set PIP_INDEX_URL to an index that this machine reaches" in line


def test_what_builds_the_project_is_locked_where_it_is_installed() -> None:
    [backend] = PROJECT["build-system"]["requires"]
    assert backend in PROJECT["dependency-groups"]["build"]
    assert names(PROJECT["dependency-groups"]["build"]) <= Lock("server").keys()


@pytest.mark.parametrize("name", ["docs", "release"])
def test_the_tools_of_a_group_are_locked(name: str) -> None:
    lock = Lock(name)
    for each in map(Requirement, PROJECT["dependency-groups"][name]):
        assert each.specifier.contains(lock[canonicalize_name(each.name)]), str(each)


def test_developers_run_the_same_gateway() -> None:
    server, dev = Lock("server"), Lock("dev")
    assert server.items() <= dev.items()
    assert all(dev.hashes[name] == hashes for name, hashes in server.hashes.items())


def test_the_image_has_the_tested_versions_of_all_extras() -> None:
    lock, dev = Lock("all"), Lock("dev")
    assert lock.items() <= dev.items()
    assert all(dev.hashes[name] == hashes for name, hashes in lock.hashes.items())
    optional = PROJECT["project"]["optional-dependencies"]
    assert names(PROJECT["project"]["dependencies"]).union(*map(names, optional.values())) <= lock.keys()


def requirements_of(name: str, extras: set[str]) -> list[Requirement]:
    """Return the requirements of an installed package on this platform."""
    found = [Requirement(each) for each in requires(name) or ()]
    return [
        each
        for each in found
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def all_of(left: list[Requirement]) -> Iterator[Requirement]:
    """Yield these requirements and all that they lead to."""
    seen = set[tuple[str, ...]]()
    while left:
        requirement = left.pop()
        yield requirement
        if (requirement.name, *requirement.extras) not in seen:
            seen.add((requirement.name, *requirement.extras))
            left += requirements_of(requirement.name, requirement.extras)


# What only other platforms and Pythons install.
ELSEWHERE = {
    "backports-zstd",
    "cffi",
    "colorama",
    "httpx2-jsfetch",
    "pycparser",
    "typing-extensions",
    "uvloop",
}


def test_every_package_of_the_checkout_is_locked() -> None:
    """When pyproject.toml changes, `make lock` has to run: all direct and indirect requirements have a version."""
    groups = PROJECT["dependency-groups"]
    locked, needed = Lock("dev"), set[str]()
    direct = [Requirement(each) for each in (*groups["build"], *groups["dev"]) if isinstance(each, str)]
    direct += requirements_of("dragoman", set(PROJECT["project"]["optional-dependencies"]))
    for requirement in all_of(direct):
        name = canonicalize_name(requirement.name)
        assert name in locked, name
        assert requirement.specifier.contains(locked[name]), str(requirement)
        assert version(name) == str(locked[name]), f"{name}: the environment is not the locked one"
        needed.add(name)
    assert locked.keys() - needed <= ELSEWHERE, "nobody needs them"


# -- the SBOM ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sbom(wheel: zipfile.ZipFile) -> dict[str, Any]:
    [name] = [name for name in wheel.namelist() if "/sboms/" in name]
    assert name.endswith(".dist-info/sboms/dragoman.cdx.json")
    found: dict[str, Any] = json.loads(wheel.read(name))
    return found


@pytest.mark.promise("S17")
def test_the_sbom_agrees_with_the_lock(sbom: dict[str, Any]) -> None:
    lock = Lock("dev")
    for component in sbom["components"]:
        name = component["name"]
        assert component["version"] == str(lock[name])
        assert component["purl"] == f"pkg:pypi/{name}@{component['version']}"
        assert {"sha256:" + each["content"] for each in component["hashes"]} == lock.hashes[name]
        assert all(
            "expression" in each or each["license"].keys() & {"id", "name"} for each in component["licenses"]
        )
        assert component["licenses"]


@pytest.mark.promise("S17")
def test_the_sbom_names_each_dependency_direct_or_not(sbom: dict[str, Any]) -> None:
    direct = [*PROJECT["project"]["dependencies"]]
    direct += [each for extra in PROJECT["project"]["optional-dependencies"].values() for each in extra]
    root = sbom["metadata"]["component"]
    assert (root["name"], root["version"]) == ("dragoman", PROJECT["project"]["version"])
    names_of = {each["bom-ref"]: each["name"] for each in (root, *sbom["components"])}
    needs = {
        names_of[each["ref"]]: {names_of[ref] for ref in each["dependsOn"]} for each in sbom["dependencies"]
    }
    assert needs["dragoman"] == names(direct)
    assert needs.keys() - {"dragoman"} == {each["name"] for each in sbom["components"]}
    # All that is installed here by way of them, and nothing that they do not lead to.
    installed = requirements_of("dragoman", set(PROJECT["project"]["optional-dependencies"]))
    assert needs.keys() - {"dragoman"} >= {canonicalize_name(each.name) for each in all_of(installed)}
    assert needs.keys() - {"dragoman"} - set().union(*needs.values()) == set()


def test_the_sbom_is_the_same_for_the_same_lock(sbom: dict[str, Any]) -> None:
    assert not {"serialNumber", "timestamp"} & {*sbom, *sbom["metadata"]}
    assert all(one["name"] < two["name"] for one, two in pairwise(sbom["components"]))


# -- the install -------------------------------------------------------------------------------------------


def test_the_editable_install_is_this_checkout() -> None:
    import dragoman
    import dragoman_server

    assert Path(dragoman.__file__).parents[2] == ROOT
    assert Path(dragoman_server.__file__).parents[2] == ROOT


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, and of other packages only what the extra `server` locks."""
    root = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(root, with_pip=False, symlinks=True)
    (site,) = root.glob("lib/python*/site-packages")
    for name in Lock("server"):
        with contextlib.suppress(PackageNotFoundError):  # of another platform or Python
            link_package(name, site)
    arguments = ["--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "--python", str(root), "install", *arguments, str(built[".whl"])]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return root


def link_package(name: str, site: Path) -> None:
    """Make an installed package visible in another environment, without installing it there."""
    files = distribution(name).files
    assert files is not None
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))


@pytest.mark.promise("S17")
@pytest.mark.process
def test_the_wheel_serves_a_request_where_nothing_else_is_installed(installed: Path, tmp_path: Path) -> None:
    command = installed / "bin" / "dragoman"
    done = subprocess.run(
        [command, "--version"], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"dragoman {PROJECT['project']['version']}\n"
    assert (
        (installed / "share" / "man" / "man1" / "dragoman.1").read_text("utf-8").startswith(".TH DRAGOMAN 1")
    )
    with Server("--port", "0", command=(str(command), "serve")).ready() as server:
        body = {"model": "sim/echo", "messages": [{"role": "user", "content": "Hello"}]}
        _, answer = server.request("POST", "/v1/chat/completions", body)
        assert json.loads(answer)["choices"][0]["message"]["content"] == "Hello"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_the_main_suite_does_not_read_the_recordings() -> None:
    """They are outside of the repository: results would depend on the folders beside a clone."""
    recordings = ROOT / "tests" / "recordings"
    readers = [
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("*.py")
        if not path.is_relative_to(recordings)
        if re.search(r"^(import|from) corpus\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert readers == []


@pytest.mark.parametrize(("missing", "command"), [("click", "--help"), ("anyio", "serve")])
def test_without_the_extra_the_command_names_what_to_install(missing: str, command: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv[1:] = [{command!r}];"
        "from dragoman_server.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"dragoman: {missing} is not installed: this is the library without the gateway. "
        "Install it with its extra `server`, from a clone with: pip install '.[server]'"
    ]
