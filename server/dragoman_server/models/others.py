"""Find the models that a request names besides its own, for its upstream to use.

Upstreams get these members as they are, unless the request is translated, so no rule of the gateway's leads to such a
model. Whether a client key may use it is checked by the name that the upstream gets.
"""

from collections.abc import Iterator, Mapping

import msgspec

from dragoman import RemoteProtocolError
from dragoman.jsontext import decode

# Members with models, or with objects that have a `model`: what an upstream tries next (`fallbacks` of Messages and of
# LiteLLM, `models` of OpenRouter), and tools that are models themselves (Messages' advisor, OpenAI's image_generation).
_MEMBERS = ("fallbacks", "models", "tools")


# Each is looked up.
_MAX_MODELS = 100


def other_models(fields: Mapping[str, msgspec.Raw]) -> list[str]:
    """Return the models that a request names besides `model`, each once. Raises RemoteProtocolError."""
    found = list(dict.fromkeys(name for each in _MEMBERS for name in _names(each, fields.get(each))))
    if len(found) > _MAX_MODELS:
        raise RemoteProtocolError(f"a request may name at most {_MAX_MODELS} models besides its own")
    return found


def _names(member: str, raw: msgspec.Raw | None) -> Iterator[str]:
    if raw is None or (member == "tools" and b'"model"' not in bytes(raw)):
        return
    value = decode(bytes(raw))
    for each in value if type(value) is list else ():
        name = each.get("model") if type(each) is dict else each
        if type(name) is str:
            yield name
