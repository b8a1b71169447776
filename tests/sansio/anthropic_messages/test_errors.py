"""Error bodies, read and written."""

from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import decode
from dragoman.protocols.anthropic_messages import SPEC


def test_every_kind_has_a_type() -> None:
    for kind in ErrorKind:
        status, data = SPEC.write_error(WireError(kind, "m"), None)
        assert status >= 400
        assert decode(data)["request_id"] is None
