"""Find the models that a request names besides its own, for its upstream to use.

Upstreams get these members as they are, unless the request is translated, so no rule of the gateway's leads to such a
model. Whether a client key may use it is checked by the name that the upstream gets.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

from dragoman import RemoteProtocolError
from dragoman.jsontext import JSON, decode

# Members with models, or with objects that have a `model`: what an upstream tries next (`fallbacks` of Messages and of
# LiteLLM, `models` of OpenRouter), and tools that are models themselves (Messages' advisor, OpenAI's image_generation).
# The case of names does not count, because for servers in Go it does not: they are "preferring an exact match but also
# accepting a case-insensitive match" -- https://pkg.go.dev/encoding/json#Unmarshal
_MEMBERS = ("fallbacks", "models", "tools")
# What tools have if one has a model: its name, which may be escaped. Most requests have many tools, and none with it.
_MODEL = re.compile(rb'"model"|\\u00', re.IGNORECASE)
# Each is looked up.
_MAX_MODELS = 100


def other_models(fields: Mapping[str, msgspec.Raw]) -> list[str]:
    """Return the models that a request names besides `model`, each once. Raises RemoteProtocolError."""
    found = list(dict.fromkeys(name for member, raw in fields.items() for name in _names(member, raw)))
    if len(found) > _MAX_MODELS:
        raise RemoteProtocolError(f"a request may name at most {_MAX_MODELS} models besides its own")
    return found


def _names(member: str, raw: msgspec.Raw) -> Iterator[str]:
    kind = member.casefold()
    if kind == "model" and member != "model":
        yield from _texts([decode(bytes(raw))])
    elif kind in _MEMBERS and (kind != "tools" or _MODEL.search(bytes(raw)) is not None):
        value = decode(bytes(raw))
        for each in value if type(value) is list else ():
            found = (
                [each[name] for name in each if name.casefold() == "model"] if type(each) is dict else [each]
            )
            yield from _texts(found)


def _texts(values: list[JSON]) -> Iterator[str]:
    return (value for value in values if type(value) is str)
