"""What is asked for by a URL's path, and the answers that are no model's."""

import json

from dragoman import UPSTREAMS
from dragoman_server.simulator.reply import MADE_AT
from dragoman_server.simulator.scripts import MODELS

# Protocol -> its path without a version: base URLs differ in what stands before it.
PATHS = {spec.name: spec.path.removeprefix("/v1") for spec in UPSTREAMS.values()}
MODELS_PATH = "/models"
COMPACT_PROTOCOL = "openai_responses"
COMPACT_PATH = f"{PATHS[COMPACT_PROTOCOL]}/compact"

_MADE_AT_TEXT = "2026-01-01T00:00:00Z"


def protocol_of(path: str) -> str | None:
    """The protocol whose endpoint a path ends with."""
    return next((name for name, end in PATHS.items() if path.endswith(end)), None)


def model_list(*, anthropic: bool) -> bytes:
    """All simulated models, in Anthropic's form or OpenAI's."""
    if not anthropic:
        made = {"object": "model", "created": MADE_AT, "owned_by": "dragoman"}
        return json.dumps({"object": "list", "data": [{"id": name, **made} for name in MODELS]}).encode()
    unknown = ("max_input_tokens", "max_tokens", "line", "deprecated_at", "retires_at", "capabilities")
    data = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": _MADE_AT_TEXT,
            "lifecycle": "active",
        }
        | dict.fromkeys(unknown)
        for name in MODELS
    ]
    page = {"data": data, "first_id": data[0]["id"], "last_id": data[-1]["id"], "has_more": False}
    return json.dumps(page).encode()


def not_found(method: str, path: str) -> bytes:
    """The body of a 404 for a path that nobody serves, readable for all clients."""
    message = f"the simulator does not serve {method} {path[:200]}"
    return json.dumps(
        {"error": {"message": message, "type": "not_found", "param": None, "code": None}}
    ).encode()
