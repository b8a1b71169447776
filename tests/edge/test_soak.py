"""Short forms of `make soak`: a few seconds of mixed load with errors, and a few hundred clients that leave.

Minutes of the first and ten thousands of the second are for `make soak`.
"""

from pathlib import Path

import pytest
from census import left_behind
from edge import LOOPS
from http_certificate import make_certificate
from soak import Soak
from trials import trials

pytestmark = pytest.mark.process


@pytest.mark.promise("R2", "R9", "R10")
@pytest.mark.parametrize("backend", LOOPS)
def test_a_mixed_load_with_errors_leaves_nothing(tmp_path: Path, backend: str) -> None:
    certificate = make_certificate(tmp_path)
    for number, trial in enumerate(trials()):
        (directory := tmp_path / str(number)).mkdir()
        figures = Soak(directory, backend, certificate, clients=4).run(1.0)
        assert figures.broken() == [], figures.table()
        with trial:
            assert figures.slow() == [], figures.table()


@pytest.mark.promise("R2", "R9")
@pytest.mark.parametrize("backend", LOOPS)
def test_clients_that_leave_leave_nothing_behind(tmp_path: Path, backend: str) -> None:
    behind = left_behind(backend, 100, tmp_path)
    assert (behind.found, behind.uncollected) == ([], [])
