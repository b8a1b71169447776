"""Hold each package of the core to 100 % branch coverage by the core's own tests, those in tests/sansio.

What only the tests of the gateway or of clients reach does not count: such a line runs, but no test of it says what
its result should be. A package is a folder with an `__init__.py`, without the folders below it. This reads what
`make coverage` recorded. Lines that run on import count.

    python tests/package_coverage.py
"""

import io
import sys
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[1]
SANSIO = ROOT / "sansio"


def main() -> int:
    recorder = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    recorder.load()
    packages = sorted(each.parent for each in SANSIO.rglob("__init__.py"))
    incomplete = 0
    for package in packages:
        modules = [str(each) for each in sorted(package.glob("*.py"))]
        report = io.StringIO()
        if recorder.report(morfs=modules, show_missing=True, file=report) < 100:
            incomplete += 1
            print(report.getvalue())
    print(f"{len(packages) - incomplete} of {len(packages)} packages of the core are covered by tests/sansio")
    return 1 if incomplete else 0


if __name__ == "__main__":
    sys.exit(main())
