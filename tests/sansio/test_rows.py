"""What readers and writers make of the rows in the protocols' folders is what stands there: see core/rows.py."""

from pathlib import Path

import pytest
from core import rows


@pytest.mark.parametrize("path", rows.FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_rows(path: Path) -> None:
    found = "\n".join(rows.differences(path))
    assert not found, f"\n{found}\n\n`make golden` writes {path.name} again."
