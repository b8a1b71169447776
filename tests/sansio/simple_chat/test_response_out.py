"""The endpoints of the simple API. What they send is in response_out.txt."""

from dragoman.codec import NDJSON, SSE, reframe
from dragoman.protocols.simple_chat import SPEC


def test_the_endpoints() -> None:
    assert [(each.path, each.streams, each.framing, each.media_type) for each in SPEC.endpoints[1:]] == [
        ("/chat/stream", "always", NDJSON, "application/json"),
        ("/chat/sse", "always", SSE, "text/event-stream"),
    ]
    assert (SPEC.endpoints[0].path, SPEC.endpoints[0].streams) == ("/chat/json", "never")


def test_a_stream_of_lines_ends_with_the_last_one() -> None:
    writer = NDJSON.writer()
    assert reframe(writer, b'data: {"a":1}\n\n') + writer.eof() == b'{"a":1}\n'
