"""What AWS says in its own forms: errors, requests for counts, and the stream of InvokeModelWithResponseStream."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping, Sequence

from dragoman import UPSTREAMS, ErrorKind, RemoteProtocolError, WireError
from dragoman.codec import AwsMessage, AwsMessageReader, Framing
from dragoman.errors import kind_of_status
from dragoman.jsontext import JSONObject, decode_object, encode
from dragoman.sse import Frame
from dragoman_server.capabilities.cloud_apis import AWS_STREAM_STATUSES, EVENT_STREAM, CloudApi
from dragoman_server.capabilities.provider import MESSAGES

ERROR_TYPE = "x-amzn-errortype"
# Errors of the model itself. They say which status it had.
_OF_MODEL = frozenset({"ModelErrorException", "ModelStreamErrorException"})
# In the last event. "inputTokenCount excludes the cache", as input_tokens does. A usage of the stream comes first.
_METRICS = "amazon-bedrock-invocationMetrics"
_METRICS_OF_USAGE: Mapping[str, str] = {
    "input_tokens": "inputTokenCount",
    "output_tokens": "outputTokenCount",
    "cache_read_input_tokens": "cacheReadInputTokenCount",
    "cache_creation_input_tokens": "cacheWriteInputTokenCount",
}

_MESSAGES = UPSTREAMS[MESSAGES]
# Statuses -> exceptions. In a stream are those only that ResponseStream has (botocore 1.44.8, its service model).
_EXCEPTIONS: Mapping[int, str] = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_NOT_IN_STREAMS = frozenset({401, 403, 404})
# No client of AWS knows this status of Messages.
_OVERLOADED = {529: 503}


def meant_status(api: CloudApi, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> int:
    """Return the status that an error response of an API means."""
    name = dict(headers).get(ERROR_TYPE, "").partition(":")[0]
    return _of_model(body, 500) if name in _OF_MODEL else api.error_statuses.get(name, status)


def _of_model(body: bytes, otherwise: int) -> int:
    status = _object(body).get("originalStatusCode")
    return status if type(status) is int else otherwise


def _object(body: bytes) -> JSONObject:
    try:
        return decode_object(body, "a message of the event stream")
    except RemoteProtocolError:
        return {}


def count_tokens_body(members: Mapping[str, object]) -> bytes:
    """Return the body of CountTokens for a request for a count.

    It has a whole request for a response in it, so one with `max_tokens`, which is larger than the budget of thinking.
    """
    thinking = members.get("thinking")
    settings = _object(encode(thinking)) if thinking is not None else {}
    budget = settings.get("budget_tokens")
    request = encode({"max_tokens": (budget if type(budget) is int else 0) + 1, **members})
    body = binascii.b2a_base64(request, newline=False).decode("ascii")
    return encode({"input": {"invokeModel": {"body": body}}})


class BedrockReader:
    """Makes frames of Messages of a stream of InvokeModel: each chunk is one event, in base64. See FrameReader."""

    def __init__(self) -> None:
        self._reader = AwsMessageReader()
        self._without_usage: JSONObject | None = None  # a message_delta, until the next event has the metrics

    @property
    def held_bytes(self) -> int:
        return self._reader.held_bytes

    def receive_data(self, data: bytes) -> Iterator[Frame]:
        for message in self._reader.receive_data(data):
            kind = message.headers.get(":message-type")
            if kind == "event":
                if message.headers.get(":event-type") == "chunk":
                    yield from self._frames_of(_data_of_chunk(message.payload))
            elif kind in ("exception", "error"):
                yield from self._held({})
                yield _frame_of_error(message)

    def _frames_of(self, data: bytes) -> Iterator[Frame]:
        event = decode_object(data, "a chunk of the event stream")
        metrics = event.pop(_METRICS, None)
        yield from self._held(metrics if type(metrics) is dict else {})
        if event.get("type") == "message_delta" and not event.get("usage"):
            self._without_usage = event
        else:
            yield Frame(str(event.get("type") or "").encode(), data if metrics is None else encode(event))

    def _held(self, metrics: JSONObject) -> Iterator[Frame]:
        """Yield the event that was held, with its usage."""
        if (event := self._without_usage) is not None:
            self._without_usage = None
            usage = {name: metrics[each] for name, each in _METRICS_OF_USAGE.items() if each in metrics}
            yield Frame(b"message_delta", encode({**event, "usage": usage} if usage else event))


def _data_of_chunk(payload: bytes) -> bytes:
    try:
        text = str(decode_object(payload, "a chunk of the event stream").get("bytes") or "")
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise RemoteProtocolError("a chunk of the event stream is not in base64", status=502) from None


def _frame_of_error(message: AwsMessage) -> Frame:
    """Return the error event for an exception, or for an error that has only headers."""
    name = message.headers.get(":exception-type") or message.headers.get(":error-code") or ""
    name = name[:1].upper() + name[1:]
    body = _object(message.payload)
    text = body.get("originalMessage") or body.get("message") or message.headers.get(":error-message") or name
    status = AWS_STREAM_STATUSES.get(name, 500)
    if name in _OF_MODEL:
        status = _of_model(message.payload, status)
    error = WireError(kind_of_status(status), str(text))
    return Frame(b"error", _MESSAGES.write_error(error, None)[1])


def _statuses_by_type() -> dict[str | None, int]:
    """Return the statuses that the types of errors in Messages have, because an event of an error has none."""
    found: dict[str | None, int] = {}
    for kind in ErrorKind:
        status, body = _MESSAGES.write_error(WireError(kind, ""), None)
        found.setdefault(_MESSAGES.read_error(status, body).type, status)
    return found


_STATUSES = _statuses_by_type()


def write_error(status: int, body: bytes) -> tuple[int, str, bytes]:
    """Return status, exception and body for an error in the form of Messages."""
    status = _OVERLOADED.get(status, status)
    name = _EXCEPTIONS.get(status, "InternalServerException" if status >= 500 else "ValidationException")
    return status, name, encode({"message": _MESSAGES.read_error(status, body).message})


class BedrockWriter:
    """Makes the stream of InvokeModel of one of Messages: each event is one chunk, in base64. See FrameWriter."""

    def send(self, frame: Frame) -> bytes:
        if frame.event == b"error":
            return _message_of_error(frame.data)
        if frame.event == b"ping":
            return _HEARTBEAT
        return AwsMessage(
            _head("event", "chunk"), b'{"bytes":"%b"}' % binascii.b2a_base64(frame.data, newline=False)
        ).encode()

    def eof(self) -> bytes:
        return b""


def _head(kind: str, name: str) -> dict[str, str]:
    return {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}


# Clients ignore events that they do not know: boto3 and botocore, Anthropic's SDKs, the AWS SDK for JavaScript.
_HEARTBEAT = AwsMessage(_head("event", "ping"), b"{}").encode()


def _message_of_error(data: bytes) -> bytes:
    status = _STATUSES.get(_MESSAGES.read_error(500, data).type, 500)
    written, name, body = write_error(status, data)
    if written in _NOT_IN_STREAMS:
        name = "ModelStreamErrorException"
        message = _object(body)["message"]
        body = encode({"message": message, "originalMessage": message, "originalStatusCode": written})
    return AwsMessage(_head("exception", name[0].lower() + name[1:]), body).encode()


BEDROCK_STREAM = Framing(EVENT_STREAM, BedrockReader, BedrockWriter)
