"""What is measured by `make growth` and held by tests/test_growth.py."""

from growth import core, gateway

DIMENSIONS = [*core.DIMENSIONS, *gateway.DIMENSIONS]
