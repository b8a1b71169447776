"""Plain URLs are parsed as httpx2 parses them."""

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman_server.upstream.urls import parse_url, plain_url

_PLAIN = [
    "http://127.0.0.1:9/v1",
    "https://api.openai.com/v1/chat/completions",
    "https://api.example/v1/messages?beta=true",
    "https://generativelanguage.googleapis.com/v1beta/models/gemini-3:streamGenerateContent?alt=sse",
    "http://localhost",
    "https://a-b.example:8443/",
    "http://a?b=c",
]
# What has another spelling, or is not valid. httpx2 decides.
_OTHERS = [
    "http://a:80/",
    "https://a:443/x",
    "http://A.example/",
    "http://a/./b",
    "http://a/../b",
    "http://a/%41",
    "http://a/b#c",
    "http://user:pass@a/",
    "http://[::1]:8080/",
    "http://ü.example/",
    "http://256.1.1.1/",
    "http://1.2.3/",
    "http://a:99999/",
    "http://a:0/",
    "http://a /",
    "http://a/\n",
    "ftp://a/",
    "a",
    "",
]
_pieces = st.lists(
    st.sampled_from(
        [*"aZ0.:/?&=#%@[]~-_ é", "http://", "https://", ":80", ":443", ":8080", "127.0.0.1", "/.", ".."]
    ),
    max_size=12,
).map("".join)


def _parts(url: object) -> dict[str, object]:
    names = ("scheme", "netloc", "host", "raw_host", "port", "raw_path")
    return {name: getattr(url, name) for name in names}


@pytest.mark.parametrize("url", _PLAIN)
def test_urls_of_upstreams_are_plain(url: str) -> None:
    assert plain_url(url) is not None


@pytest.mark.parametrize("url", _OTHERS)
def test_others_are_not(url: str) -> None:
    assert plain_url(url) is None


@given(st.sampled_from(["", "http://", "https://", "http://a", "https://a.b:81/"]), _pieces)
@example("http://a", "/x//y/")
@example("http://", "a.")
@example("http://", "1.2")
def test_a_plain_url_is_what_httpx2_makes_of_it(start: str, rest: str) -> None:
    url = start + rest
    plain = plain_url(url)
    if plain is not None:
        assert _parts(plain) == _parts(httpx2.URL(url)) == _parts(httpx2.URL(str(plain)))


def test_what_is_not_valid_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="port"):
        parse_url("http://a:x/")
