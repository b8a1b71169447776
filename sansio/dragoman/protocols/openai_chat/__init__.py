"""OpenAI Chat Completions: POST /v1/chat/completions, as OpenAI and the many compatible servers speak it.

Compatible servers differ from each other more than servers of any other protocol. The readers therefore accept every
form that is known to be sent, and the writers send only what the official SDKs accept. Its size comes from these
differences, and from reasoning, for which there is no official member.
"""

from __future__ import annotations

from dragoman._wire.sse import encode_comment
from dragoman.codec import Endpoint, ModelList, RateLimitHeaders, ToolLimits, UpstreamSpec
from dragoman.protocols._openai.errors import is_native_error, read_error, write_error
from dragoman.protocols._openai.settings import FILE_STORE, MAX_CACHE_MARKS
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities
from dragoman.protocols.openai_chat.observer import ChatObserver
from dragoman.protocols.openai_chat.reasoning import SIGNATURE_PLACES
from dragoman.protocols.openai_chat.request_in import read_request
from dragoman.protocols.openai_chat.request_out import write_request
from dragoman.protocols.openai_chat.response_in import ChatReader, read_whole
from dragoman.protocols.openai_chat.response_out import ChatWriter, write_whole
from dragoman.protocols.openai_chat.shapes import SETTING_PATHS
from dragoman.protocols.openai_chat.tables import CACHE_MARK_NAMES, FORWARDED_HEADERS, MAX_STOPS, NAME

__all__ = ["SPEC"]

SPEC = UpstreamSpec(
    name=NAME,
    reference="https://platform.openai.com/docs/api-reference/chat",
    path="/chat/completions",
    endpoints=(Endpoint("/v1/chat/completions", heartbeat=encode_comment(b"keepalive")),),
    sequential=False,
    choices=True,
    # Names: "with a maximum length of 64" (openai-python 3.54.0, types/shared/function_definition.py).
    # Ids: "Expected a string with maximum length 64" (orchidfiles/ungate#26, read 2026-11-22).
    tool_limits=ToolLimits(
        max_name=64, max_call_id=64, hosted_tools=frozenset(("web_search",)), hosted_choice=False
    ),
    settings=frozenset(SETTING_PATHS),
    message_members=frozenset({"name"}),
    file_store=FILE_STORE,
    read_request=read_request,
    capabilities=ChatCapabilities,
    write_request=write_request,
    stream_reader=ChatReader,
    stream_writer=ChatWriter,
    read_whole=read_whole,
    write_whole=write_whole,
    read_error=read_error,
    is_native_error=is_native_error,
    write_error=write_error,
    observer=ChatObserver,
    end_markers=(b"[DONE]",),
    error_markers=(b"error", b'"detail"', b'"message"'),
    output_member="choices",
    max_stop_sequences=MAX_STOPS,
    max_cache_marks=MAX_CACHE_MARKS,
    checks_strict_schemas=True,
    cache_mark_form=lambda capabilities: CACHE_MARK_NAMES.get(capabilities.cache_marks),
    media=frozenset({"image", "file", "audio", "video"}),
    url_media={"audio": ()},
    file_id_media=frozenset({"file"}),
    # "Image URLs are only allowed for messages with role 'user'" (openai-node#1030, read 2026-11-30)
    text_roles=frozenset({"system", "developer", "assistant"}),
    prefix_member="prefix",
    echoed_members=("functions", "tools"),
    signature_places=SIGNATURE_PLACES,
    content_members=frozenset({"model", "messages", "tools", "functions", "stream"}),
    # Signatures are in a member that no official type has, and many clients drop such members.
    clients_drop_signatures=True,
    needs_usage=False,
    forwarded_headers=FORWARDED_HEADERS,
    response_headers=frozenset({"openai-processing-ms"}),
    model_list=ModelList(),
    rate_limit_headers=RateLimitHeaders("x-ratelimit-"),
)
