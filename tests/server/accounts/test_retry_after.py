"""The time until the next request, from the headers of an upstream."""

import pytest

from dragoman.errors import ErrorKind, WireError
from dragoman_server.policy.error_actions import MAX_RETRY_AFTER_S, retry_after

# Wed, 21 Oct 2026 07:28:00 GMT
NOW = 1792567680.0


FORMS: list[tuple[list[tuple[str, str]], float | None]] = [
    ([], None),
    ([("retry-after", "7")], 7.0),
    ([("retry-after", " 0.5 ")], 0.5),
    ([("retry-after", "0")], 0.0),
    ([("retry-after-ms", "1500")], 1.5),
    ([("retry-after", "9"), ("retry-after-ms", "250")], 0.25),
    ([("retry-after", "9"), ("retry-after-ms", "soon")], 9.0),
    ([("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT")], 30.0),
    ([("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT")], 0.0),
    ([("retry-after", "Wed, 21 Oct 2026 09:28:30 +0200")], 30.0),
    ([("retry-after", "Wednesday, 21-Oct-26 07:28:30 GMT")], 30.0),
    ([("retry-after", "Wed Oct 21 07:28:30 2026")], 30.0),
    ([("retry-after", "2592000")], 2592000.0),  # a month
    ([("retry-after", "99999999999")], MAX_RETRY_AFTER_S),
    ([("retry-after", "9" * 400)], MAX_RETRY_AFTER_S),
    ([("retry-after", "soon")], None),
    ([("retry-after", "nan")], None),
    ([("retry-after", "-3")], None),
    ([("retry-after", "1_0")], None),
    ([("retry-after", "\u0661")], None),
    ([("retry-after", "")], None),
    ([("retry-after-ms", "x")], None),
    ([("retry-after", "Wed, 99 Foo 99999999 07:28:00 GMT")], None),
    ([("retry-after", "Wed, 21 Oct 999999 07:28:00 GMT")], None),
]


@pytest.mark.promise("R7")
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


def test_r7_retry_after_in_every_form() -> None:
    for headers, seconds in FORMS:
        assert retry_after(headers, NOW) == seconds, headers
