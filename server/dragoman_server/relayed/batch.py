"""Read and write the models in bodies with several requests: `requests[].params.model`, and `requests[].model`."""

from collections.abc import Mapping

import msgspec

from dragoman import RemoteProtocolError, peek
from dragoman.jsontext import decode_object, splice_model

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode

# "A Message Batch is limited to either 100,000 Message requests or 256 MB in size" -- platform.claude.com/docs, batches
MAX_REQUESTS = 100_000
# Each is looked up.
MAX_MODELS = 100


def models_in(body: bytes) -> list[str]:
    """Return the models of the requests, each once. Raises RemoteProtocolError."""
    found = list(dict.fromkeys(peek(bytes(each["params"])).model for each in _requests(body)[1]))
    if len(found) > MAX_MODELS:
        raise RemoteProtocolError(f"a batch may have at most {MAX_MODELS} models", path="/requests")
    return found


def with_models(body: bytes, models: Mapping[str, str]) -> bytes:
    """Return the batch with other models: each -> its new name. The requests keep all their other bytes."""
    members, requests = _requests(body)
    for each in requests:
        params = bytes(each["params"])
        head = peek(params)
        each["params"] = msgspec.Raw(splice_model(params, head, models[head.model]))
    return msgspec.json.encode({**members, "requests": requests})


def _requests(body: bytes) -> tuple[dict[str, msgspec.Raw], list[dict[str, msgspec.Raw]]]:
    try:
        members = _decode(body)
        requests = _decode_list(members["requests"])
        if len(requests) > MAX_REQUESTS or not all("params" in each for each in requests):
            raise KeyError
        return members, requests
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        decode_object(body, "the request body")
        raise RemoteProtocolError(
            f"requests must be a list of at most {MAX_REQUESTS} objects with params",
            path="/requests",
            code="invalid_value",
        ) from None


def with_named_model(body: bytes, model: str) -> bytes:
    """Return a request that names its model in the path with another name where it repeats that, or its requests do."""
    try:
        members = _decode(body)
        parts = [members, *(_decode_list(members["requests"]) if "requests" in members else ())]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decode_object(body, "the request body")
        raise RemoteProtocolError(
            "requests must be a list of objects", path="/requests", code="invalid_value"
        ) from None
    for each in parts:
        if "model" in each:
            each["model"] = msgspec.Raw(msgspec.json.encode(f"models/{model}"))
    if len(parts) > 1:
        members["requests"] = msgspec.Raw(msgspec.json.encode(parts[1:]))
    return msgspec.json.encode(members)
