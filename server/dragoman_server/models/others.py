"""Find the models that a request names besides its own, for its upstream to use.

Upstreams get these members as they are, unless the request is translated, so no rule of the gateway's leads to such a
model. Whether a client key may use it is checked by the name that the upstream gets.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from dragoman import RemoteProtocolError, RequestHead
from dragoman.jsontext import all_members, decode, search

# Members with models, or with objects that have a `model`: what an upstream tries next (`fallbacks` of Messages and of
# LiteLLM, `models` of OpenRouter), and tools that are models themselves (Messages' advisor, OpenAI's image_generation).
# The case of names does not count, because for servers in Go it does not: they are "preferring an exact match but also
# accepting a case-insensitive match" -- https://pkg.go.dev/encoding/json#Unmarshal
_MEMBERS = ("fallbacks", "models", "tools")
# What tools have if one has a model: its name, which may be escaped. Most requests have many tools, and none with it.
_MODEL = re.compile(rb'"model"|\\u00', re.IGNORECASE)
# Each is looked up.
_MAX_MODELS = 100


def other_models(body: bytes, request_head: RequestHead) -> list[str]:
    """Return the models that a request names besides `model`, each once. request_head: from peek() for the body.

    If a name is there twice, both values count: the gateway and most readers take the last one, but "the behavior of
    software that receives such an object is unpredictable" (RFC 8259, section 4), and the upstream may take the first.

    Raises RemoteProtocolError.
    """
    members = list(all_members(body, request_head))
    last = max((index for index, (name, _) in enumerate(members) if name == "model"), default=len(members))
    others = members[:last] + members[last + 1 :]
    found = dict.fromkeys(name for member in others for name in _names(*member))
    if len(found) > _MAX_MODELS:
        raise RemoteProtocolError(f"a request may name at most {_MAX_MODELS} models besides its own")
    return list(found)


def _names(member: str, text: bytes) -> Iterator[str]:
    kind = member.casefold()
    if kind == "model":
        yield from _texts([_decode(text)])
    elif kind in _MEMBERS and (kind != "tools" or any(search(_MODEL, text))):
        value = _decode(text)
        for each in value if type(value) is list else ():
            found = [of for name, of in each if name.casefold() == "model"] if type(each) is tuple else [each]
            yield from _texts(found)


def _decode(text: bytes) -> Any:
    """Return the value, with each object as a tuple of its names and values. Raises RemoteProtocolError."""
    decode(text)  # with our limits
    try:
        return json.loads(text, object_pairs_hook=tuple)
    except RecursionError:  # it needs more of the stack
        raise RemoteProtocolError("the request body is nested too deep") from None


def _texts(values: list[Any]) -> Iterator[str]:
    return (value for value in values if type(value) is str)
