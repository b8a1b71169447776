"""GET /v1/models: the names that this gateway answers to, in OpenAI's form or Anthropic's."""

from .routes import Route, model_ids, resolve
from .settings import OPENAI_CHAT, Settings

# Nobody knows when an alias was made; both forms demand a date.
_CREATED = 0
_CREATED_AT = "1970-01-01T00:00:00Z"


def model_list(settings: Settings, anthropic: bool) -> dict[str, object]:
    """All models. Anthropic's form is a page; ours has only one."""
    names = model_ids(settings)
    if anthropic:
        return {
            "data": [_anthropic(name) for name in names],
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
            "has_more": False,
        }
    return {"object": "list", "data": [_openai(settings, name) for name in names]}


def one_model(settings: Settings, name: str, anthropic: bool) -> dict[str, object] | None:
    """One model, None when it is not listed."""
    if name not in model_ids(settings):
        return None
    return _anthropic(name) if anthropic else _openai(settings, name)


def _openai(settings: Settings, name: str) -> dict[str, object]:
    route = resolve(settings, OPENAI_CHAT, name)
    owner = route.upstream if isinstance(route, Route) else "dragoman"
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": owner}


def _anthropic(name: str) -> dict[str, object]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": _CREATED_AT,
        "lifecycle": "active",
        "max_input_tokens": None,
        "max_tokens": None,
        "line": None,
        "deprecated_at": None,
        "retires_at": None,
        "capabilities": None,
    }
