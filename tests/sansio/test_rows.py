"""What readers and writers make of the rows in the protocols' folders is what stands there: see core/rows.py."""

from pathlib import Path

import pytest
import rows
from core.rows import FILES, written


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_rows(path: Path) -> None:
    rows.compare(path, written(path))
