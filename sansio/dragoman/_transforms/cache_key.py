"""The key by which an upstream finds the prompt's cache again: `prompt_cache_key`.

A client's own key is translated like any other setting. Here the caller's key is added where the client sent none; the
gateway's is that of the conversation (`conversation_key`). A request that is relayed byte for byte gets none.
"""

from __future__ import annotations

import msgspec

from dragoman._ir.request import Request
from dragoman._transforms.pass_context import PassContext


def add_cache_key(request: Request, context: PassContext) -> Request:
    """Add a key for the cache of the prompt if the upstream accepts one and the client sent none."""
    capabilities = context.capabilities
    if context.cache_key is None or not capabilities.cache_keys or "prompt_cache_key" in capabilities.refuses:
        return request
    name = None if "prompt_cache_key" in request.params else context.cache_key()
    if name is None:
        return request
    return msgspec.structs.replace(request, params={**request.params, "prompt_cache_key": name})
