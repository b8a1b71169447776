"""What is in the wheel, and that the editable install is of this checkout."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, requires
from pathlib import Path

import pytest

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
    assert set(optional) == {"server", "grammar", "valkey"}
    assert set(optional["grammar"]) | set(optional["valkey"]) <= set(dev)
    assert "'.[server]'" in (ROOT / "Makefile").read_text("utf-8")


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
