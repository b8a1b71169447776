"""Errors in streams of Chat Completions. The error object has the form of the family."""

from __future__ import annotations

from dragoman._wire.errors import WireError
from dragoman._wire.json import JSONObject, encode
from dragoman._wire.sse import encode_frame
from dragoman.protocols._openai.errors import error_object


def has_error(chunk: JSONObject) -> bool:
    """True if a chunk of a stream, or a whole body, is or holds an error."""
    if chunk.get("error"):
        return True
    # Mistral: {object: error, message, type, code} or {detail} (php-mistral#76, read 2026-11-22). We have seen the
    # first from vLLM, too, and the second from FastAPI. Others send the members of the error object without one. With
    # neither a code nor a type a message may be a report, or the empty value of every member.
    message = chunk.get("message")
    has_message = type(message) is str and message != "" and bool(chunk.get("code") or chunk.get("type"))
    return "choices" not in chunk and (chunk.get("object") == "error" or "detail" in chunk or has_message)


def error_frame(error: WireError) -> bytes:
    """Return the frame that ends a stream with an error. No [DONE] follows, because the response is not complete."""
    return encode_frame(encode({"error": error_object(error)}))
