"""Content that the upstream does not accept: cache marks, images, files, sounds and videos.

What the protocols and hosts accept is data (UpstreamSpec, Capabilities). Marks are dropped, or get a shorter time. An
image or a file is replaced by a text, because one in the history would fail each later turn, and the model has to know
that there was one. Each loss is recorded.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._ir.media_types import WEB, kind_of_file, type_by_name
from dragoman._ir.native import changed
from dragoman._ir.request import Media, Message, OpaquePart, Request, Text, ToolResult
from dragoman._ir.tools import LONG_CACHE_OPTION, SHORT_CACHE_OPTION, CacheMark, HostedTool
from dragoman._transforms.pass_context import PassContext, map_parts
from dragoman._wire.exceptions import RequestRefused, dotted_path

# The members that are marks, in any protocol.
_MARKS = ("cache_control", "prompt_cache_breakpoint")


def fit_cache_marks(request: Request, context: PassContext) -> Request:
    """Drop cache marks that the upstream refuses: all of them, or the first ones if there are too many.

    Marks are in the order of the prompt: tools, system, messages. The last ones cover the longest prefixes.
    """
    nodes: list[Any] = [*request.tools, *context.contents.marked]
    options = request.params.get("prompt_cache_options")
    upstream, capabilities, ledger = context.upstream, context.capabilities, context.ledger
    find_form, limit = upstream.cache_mark_form, upstream.max_cache_marks
    form = None if find_form is None else find_form(capabilities)
    refused = "cache_control" in capabilities.refuses
    if refused and options is not None:
        ledger.dropped(request.path_of("prompt_cache_options"), _NO_MARKS)
        params = {param: value for param, value in request.params.items() if param != "prompt_cache_options"}
        request = msgspec.structs.replace(request, params=params)
    # Objects of another protocol are not sent, but for tools that have a function.
    marked = [
        node
        for node in nodes
        if node.cache is not None
        and (
            getattr(node, "origin", "") in ("", upstream.name)
            or getattr(node, "function_fallback", None) is not None
        )
    ]
    if not marked:
        return request  # as most are
    reasons: dict[str, str] = {}  # why marks are dropped, by their paths
    if refused or (find_form is not None and form is None):
        reasons = {node.cache.path: _NO_MARKS for node in marked}
    else:
        on_tools = find_form is None or (context.rewritten and form == "cache_control")
        if not on_tools:
            reasons = {tool.cache.path: _NO_TOOL_MARKS for tool in request.tools if tool.cache is not None}
        kept, counted = limit, [node for node in marked if node.cache.path not in reasons]
        if find_form is None and type(options) is dict and options.get("mode") == "implicit":
            kept -= 1
        excess = f"at most {limit} cache marks are allowed: the last ones are kept"
        reasons |= {node.cache.path: excess for node in counted[: max(len(counted) - kept, 0)]}
    for path, reason in reasons.items():
        ledger.dropped(path, reason)
    changes: dict[str, CacheMark | None] = dict.fromkeys(reasons)
    left = [node.cache for node in marked if node.cache.path not in reasons]
    if find_form is None:
        request = _shorten_marks(request, left, changes, ledger)
    elif context.rewritten:
        changes |= {mark.path: mark for mark in left if not mark.path.endswith(f"/{form}")}
    if not changes:
        return request
    tools = tuple([tool if tool.cache is None else _remarked(tool, changes) for tool in request.tools])
    messages = list(request.messages)
    for number in range(0, -len(messages), -1):  # most marks are on the first message and the last ones
        if not changes:
            break
        messages[number] = _remarked(messages[number], changes)
    return msgspec.structs.replace(request, messages=tuple(messages), tools=tools)


_NO_MARKS = "the upstream does not accept cache marks"
_NO_TOOL_MARKS = "the upstream does not accept cache marks on tools"


def _shorten_marks(
    request: Request, marks: list[CacheMark], changes: dict[str, CacheMark | None], ledger: Ledger
) -> Request:
    """Shorten marks behind shorter ones, and the one of the whole request."""
    after_short = False
    for mark in marks:
        if mark.ttl != "long":
            after_short = True
        elif after_short:
            # "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            # (claude-code-cache-fix#44, read 2026-11-22)
            changes[mark.path] = CacheMark(mark.path, "short")
            ledger.altered(
                mark.path, "kept for the shorter time: a longer time must not follow a shorter one"
            )
    options = request.params.get("prompt_cache_options")
    if not after_short or type(options) is not dict or options.get("ttl") != LONG_CACHE_OPTION:
        return request
    ledger.altered("/prompt_cache_options/ttl", "kept for the shorter time, as the marks before it are")
    params = {**request.params, "prompt_cache_options": {**options, "ttl": SHORT_CACHE_OPTION}}
    return msgspec.structs.replace(request, params=params)


def _remarked(node: Any, changes: dict[str, CacheMark | None]) -> Any:
    """Return a node with its changes made, which are taken out of `changes`."""
    kind = type(node)
    if kind is Message or kind is ToolResult:
        parts = tuple([_remarked(part, changes) for part in node.content])
        if not all(map(is_, parts, node.content)):
            node = changed(node, content=parts)
    if kind is Message or node.cache is None or node.cache.path not in changes:
        return node
    mark = changes.pop(node.cache.path)
    if kind is not OpaquePart and kind is not HostedTool:
        return changed(node, _MARKS, cache=mark)
    native = {name: value for name, value in node.native.items() if name not in _MARKS}
    if mark is not None:
        native["cache_control"] = {"type": "ephemeral"}  # the shorter time is the default
    return msgspec.structs.replace(node, native=native)


def fit_media(request: Request, context: PassContext) -> Request:
    """Replace images, files and videos that the upstream refuses or cannot find by a text.

    Media in messages that can have none are replaced too: a turn with an image that another model made, say.

    Raises RequestRefused (400) for audio, because a response without it would be a response to something else.
    """
    upstream, ledger = context.upstream, context.ledger
    refused = context.capabilities.refuses
    same_store = context.client.file_store == upstream.file_store

    def fit(media: Media) -> Media | Text:
        if not context.rewritten and media.source != "text":
            url = "" if media.source == "base64" else media.data
            found = kind_of_file(media.media_type or type_by_name(url, media.filename))
            media = media if found in ("file", media.kind) else changed(media, kind=found)
        kind, source = media.kind, media.source
        name = kind if kind == "audio" else f"{kind}s"
        if kind not in upstream.media or (kind in refused and source != "text"):
            reason, advice = f"the upstream does not accept {name}", f"you cannot see {name}"
        elif source == "url" and "://" in media.data[:16]:
            schemes = upstream.url_media.get(kind, WEB)
            if "media_url" in refused or not schemes:
                reason, advice = (
                    f"the upstream does not accept {name} by URL",
                    f"you cannot see {name} by URL",
                )
            elif context.rewritten or media.data.startswith(schemes):
                return media
            else:
                reason, advice = "the upstream cannot read such a URL", _ELSEWHERE
        elif source == "file_id" and not same_store:
            reason, advice = "a file id is valid only at the vendor that issued it", _ELSEWHERE
        elif source == "file_id" and kind not in upstream.file_id_media:
            reason, advice = f"the upstream's protocol has no {name} by file id", _ELSEWHERE
        else:
            return media
        if kind == "audio":
            raise RequestRefused(
                f"{dotted_path(media.path)}: {reason}; send a transcript as text",
                path=media.path,
                code="unsupported_value",
            )
        ledger.dropped(media.path, f"{reason}: a text was sent in its place")
        return placeholder(media, advice)

    def text_for(media: Media) -> Text:
        if media.source == "text":
            ledger.altered(media.path, "such a message can contain only text: that of the document was sent")
            return Text(media.as_text(), media.cache, path=media.path, rendered=True)
        ledger.dropped(media.path, "such a message can contain only text: one was sent in its place")
        return placeholder(media, "only the text of this message was kept")

    def fit_result(result: ToolResult) -> ToolResult:
        parts = tuple([fit(part) if type(part) is Media else part for part in result.content])
        return result if all(map(is_, parts, result.content)) else changed(result, content=parts)

    if not context.rewritten:
        request = map_parts(request, {Media: text_for}, upstream.text_roles)
    return map_parts(request, {Media: fit, ToolResult: fit_result})


_ELSEWHERE = "you cannot see it, because only another service has it"


def placeholder(part: Media | OpaquePart, reason: str) -> Text:
    """Return the text that is sent in the place of a part, so that the model knows of it."""
    return Text(f"[{part.kind}: left out, {reason}]", part.cache, path=part.path, rendered=True)
