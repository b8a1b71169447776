"""The time until the next request, from the headers of an upstream, as rows of retry_after.txt."""

from pathlib import Path

import pytest
import rows

from dragoman.errors import ErrorKind, WireError
from dragoman_server.policy.error_actions import MAX_RETRY_AFTER_S, retry_after

# Wed, 21 Oct 2026 07:28:00 GMT
NOW = 1792567680.0


def test_headers_are_more_precise_than_the_error() -> None:
    for headers, in_error, seconds in (
        ([], 7.5, 7.5),
        ([], -1.0, 0.0),
        ([], 1e12, MAX_RETRY_AFTER_S),
        ([("retry-after", "3")], 7.5, 3.0),
        ([("retry-after", "soon")], 7.5, 7.5),
        ([], None, None),
    ):
        error = WireError(ErrorKind.RATE_LIMIT, "slow down", retry_after_s=in_error)
        assert retry_after(headers, NOW, error) == seconds, (headers, in_error)


@pytest.mark.promise("R7")
def test_r7_retry_after_in_every_form() -> None:
    def seconds(lines: list[str]) -> list[str]:
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        return [str(retry_after(headers, NOW))]

    rows.check(Path(__file__).with_name("retry_after.txt"), seconds)
    assert retry_after([], NOW) is None
