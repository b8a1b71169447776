"""A test that hangs is one failure, and all others run: see faulthandler_timeout in pyproject.toml, and conftest.py."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LIMIT_S = 2
HANG = "\n    __import__('time').sleep(999)\n"

# The next worker goes on behind a file (a), and within one (b).
FILES = {
    "test_a.py": f"def test_1(): pass\ndef test_2(): pass\ndef test_hangs():{HANG}",
    "test_b.py": f"def test_1(): pass\ndef test_hangs_too():{HANG}def test_2(): pass\n",
    "test_c.py": "def test_1(): pass\n",
}


@pytest.mark.process
def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    options = ["-n1", "--dist", "loadfile", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={LIMIT_S}"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", TESTS.parent / "pyproject.toml", *options, tmp_path],
        capture_output=True,
        text=True,
        timeout=40 * LIMIT_S,
    )
    lines = run.stdout.splitlines()
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert "2 failed, 5 passed" in lines[-1]
    failed = [line.partition("::")[2].split()[0] for line in lines if line.startswith("FAILED")]
    assert set(failed) == {"test_hangs", "test_hangs_too"}
