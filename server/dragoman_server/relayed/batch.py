"""Read and write the models in bodies with several requests: `requests[].params.model`, and `requests[].model`."""

from collections.abc import Mapping

import msgspec

from dragoman import RemoteProtocolError, RequestHead, peek
from dragoman.jsontext import splice_model

_decode_list = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode

# "A Message Batch is limited to either 100,000 Message requests or 256 MB in size" -- platform.claude.com/docs, batches
MAX_REQUESTS = 100_000
# Each is looked up.
MAX_MODELS = 100


def requests_in(body: bytes) -> list[tuple[bytes, RequestHead]]:
    """Return the requests, and their heads. Raises RemoteProtocolError."""
    texts = [bytes(each["params"]) for each in _requests(peek(body).fields)]
    return [(text, peek(text)) for text in texts]


def models_in(body: bytes) -> list[str]:
    """Return the models of the requests, each once. Raises RemoteProtocolError."""
    found = list(dict.fromkeys(head.model for _, head in requests_in(body)))
    if len(found) > MAX_MODELS:
        raise RemoteProtocolError(f"a batch may have at most {MAX_MODELS} models", path="/requests")
    return found


def with_models(body: bytes, models: Mapping[str, str]) -> bytes:
    """Return the batch with other models: each -> its new name. The requests keep all their other bytes."""
    members = peek(body).fields
    requests = _requests(members)
    for each in requests:
        params = bytes(each["params"])
        head = peek(params)
        each["params"] = msgspec.Raw(splice_model(params, head, models[head.model]))
    return msgspec.json.encode({**members, "requests": requests})


def with_named_model(body: bytes, model: str) -> bytes:
    """Return a request that names its model in the path, with this name where it repeats that, or its requests do."""
    members = dict(peek(body).fields)
    parts = [members, *(_objects(members["requests"], "objects") if "requests" in members else ())]
    for each in parts:
        if "model" in each:
            each["model"] = msgspec.Raw(msgspec.json.encode(f"models/{model}"))
    if len(parts) > 1:
        members["requests"] = msgspec.Raw(msgspec.json.encode(parts[1:]))
    return msgspec.json.encode(members)


def _requests(members: Mapping[str, msgspec.Raw]) -> list[dict[str, msgspec.Raw]]:
    expected = f"at most {MAX_REQUESTS} objects with params"
    requests = _objects(members.get("requests", msgspec.Raw(b"null")), expected)
    if len(requests) > MAX_REQUESTS or not all("params" in each for each in requests):
        raise _not_a_list(expected)
    # Servers in Go would take a Requests or Params for the same member, see models.others.
    for name, each in (("requests", members), *(("params", each) for each in requests)):
        if sum(key.casefold() == name for key in each) > 1:
            raise RemoteProtocolError(f"{name} is there twice, in another case", path="/requests")
    return requests


def _objects(requests: msgspec.Raw, expected: str) -> list[dict[str, msgspec.Raw]]:
    """Return the requests of a body that peek() has read, so that it has not too many values."""
    try:
        return _decode_list(requests)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _not_a_list(expected) from None


def _not_a_list(expected: str) -> RemoteProtocolError:
    text = f"requests must be a list of {expected}"
    return RemoteProtocolError(text, path="/requests", code="invalid_value")
