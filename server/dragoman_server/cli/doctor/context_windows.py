"""Say if the context window of a model is too small for a coding agent, and how a server gets a larger one. Pure."""

from collections.abc import Mapping

from dragoman_server.capabilities.local_servers import LOCAL_SERVERS
from dragoman_server.models.info import ModelInfo
from dragoman_server.settings.problems import CheckFinding, quote_value

# "Tasks which require large context like web search, agents, and coding tools should be set to at least 64000 tokens."
# -- docs/context-length.mdx of ollama/ollama, read 2026-11-23
_ADVISED = 65_536

# An agent needs at least as much for its work as for its first request.
_ROOM = 2


def small_window(
    subject: str, info: ModelInfo | None, first_requests: Mapping[str, int]
) -> CheckFinding | None:
    """Return the finding for a model whose window is too small, None if it is large enough or unknown.

    first_requests: the tokens of the first request of each client, by its name.
    """
    if info is None or info.context is None or not first_requests:
        return None
    client, tokens = max(first_requests.items(), key=lambda row: row[1])
    if info.context >= tokens * _ROOM:
        return None
    text = (
        f"{quote_value(info.id)} has a context window of {info.context:,} tokens, and the first request of {client} "
        f"takes about {tokens:,}"
    )
    known = next((server for server in LOCAL_SERVERS if server.owner and server.owner == info.owned_by), None)
    fix = f"start {known.title} with {known.enlarge.format(tokens=_ADVISED)}" if known else ""
    fix = fix or "load the model with a larger context window, or use another model"
    return CheckFinding.warning("context", subject, text, fix)
