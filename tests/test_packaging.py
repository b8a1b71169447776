"""What is in the wheel, and that the editable install is of this checkout."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return zipfile.ZipFile(next(target.glob("*.whl")))


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    assert tops == {"dragoman", "dragoman_server"}
    assert {"dragoman/py.typed", "dragoman_server/py.typed"} <= set(wheel.namelist())
    assert not any(name.endswith(".pth") for name in wheel.namelist())


def test_the_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    modules = {
        path.relative_to(root).as_posix()
        for root in (ROOT / "sansio", ROOT / "server")
        for path in root.rglob("*.py")
    }
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules


def test_a_plain_install_needs_msgspec_alone() -> None:
    plain = [each for each in requires("dragoman") or () if "extra ==" not in each]
    assert [each.split(">")[0] for each in plain] == ["msgspec"]


def test_developers_get_what_the_extras_bring() -> None:
    """Tests of an extra that is not installed are skipped, and nobody would see them fail."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    optional, dev = project["project"]["optional-dependencies"], project["dependency-groups"]["dev"]
    assert set(optional) == {"server", "grammar", "socks", "valkey"}
    assert {each for name in optional.keys() - {"server"} for each in optional[name]} <= set(dev)
    assert "'.[server]'" in (ROOT / "Makefile").read_text("utf-8")


def pins() -> dict[str, Version]:
    """The versions that the checkout's environment is made of."""
    lines = (ROOT / "tests" / "tools" / "constraints.txt").read_text("utf-8").splitlines()
    named = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in named}


def wanted_of(name: str, extras: set[str]) -> list[Requirement]:
    """What an installed package requires here."""
    found = [Requirement(each) for each in requires(name) or ()]
    return [
        each
        for each in found
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def test_every_package_of_the_checkout_is_locked() -> None:
    """When pyproject.toml changes, `make lock` has to run: what it names, and what that brings, has a version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    locked, seen = pins(), set()
    left = [Requirement(each) for each in project["dependency-groups"]["dev"]]
    left += wanted_of("dragoman", set(project["project"]["optional-dependencies"]))
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        assert name in locked, name
        assert requirement.specifier.contains(locked[name]), str(requirement)
        assert version(name) == str(locked[name]), f"{name}: the environment is not the locked one"
        if (name, *requirement.extras) not in seen:
            seen.add((name, *requirement.extras))
            left += wanted_of(name, requirement.extras)
    # The standard library has that one in the newest Python.
    assert locked.keys() - {name for name, *_ in seen} <= {"backports-zstd"}, "nobody needs them"


def test_the_command_is_installed() -> None:
    [command] = entry_points(group="console_scripts", name="dragoman")
    assert callable(command.load())


def test_the_editable_install_is_this_checkout() -> None:
    import dragoman
    import dragoman_server

    assert Path(dragoman.__file__).parents[2] == ROOT
    assert Path(dragoman_server.__file__).parents[2] == ROOT


def test_the_main_suite_does_not_read_the_recordings() -> None:
    """They lie outside of the repository: its result would depend on what lies beside a clone."""
    recordings = ROOT / "tests" / "recordings"
    readers = [
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("*.py")
        if not path.is_relative_to(recordings)
        if re.search(r"^(import|from) corpus\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert readers == []


@pytest.mark.parametrize(("missing", "command"), [("click", "--help"), ("hypercorn", "serve")])
def test_without_the_extra_the_command_says_what_to_install(missing: str, command: str) -> None:
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
