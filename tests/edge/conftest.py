"""Attacks and faults at the edge, each against real `dragoman serve` processes. The rig is _support/edge.py."""

from __future__ import annotations

import pytest
from edge import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param
