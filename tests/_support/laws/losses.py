"""Search for silent losses of a translation: one value at a time is changed, and the output must change."""

import re
from collections.abc import Callable
from typing import Any

from laws.extras import BOOKKEEPING
from laws.plant import Place, covered, leaves, objects, planted, removed, steps_of
from laws.runs import ECHO, Outcome, streamed, token
from oracle import CHAT, GEMINI, MESSAGES, RESPONSES, SIMPLE_EVENTS

from dragoman import RemoteProtocolError, RequestRefused

# (protocol of the document, pattern of places) -> why nothing is lost with them.
MEANINGLESS_IN_REQUESTS: dict[tuple[str, str], str] = {
    (CHAT, r"/messages/.*/tool_calls/\w+/type"): "the member beside it, function or custom, says the same",
    (CHAT, r"/tool_choice/type"): "the member next to it says the same",
    (CHAT, r"/messages/.*/reasoning"): "the text of reasoning_details under a second name",
    (CHAT, r"/(?:stream_options/include_usage|usage/include)"): "used when the response is written",
    (CHAT, r"/parallel_tool_calls"): "says nothing where there are no tools",
    (MESSAGES, r"/tool_choice/disable_parallel_tool_use"): "says nothing where there are no tools",
    (MESSAGES, r".*/source/media_type"): "a source of type text has one media type, text/plain",
    (RESPONSES, r"/parallel_tool_calls"): "says nothing where there are no tools",
    (RESPONSES, r"/input/[^/]*/id"): "names the item in the vendor's store; calls and results meet by call_id",
    (RESPONSES, r"/input/[^/]*/status"): "the state of an item that is past",
    (RESPONSES, r"/input/function_call_output/(name|namespace)"): "repeats what the call says",
    (RESPONSES, r"/input/additional_tools[^/]*/role"): "has one value, developer",
    (GEMINI, r"/systemInstruction/role"): "has one value, system",
    (GEMINI, r"/contents/user[^/]*/role"): "the role of contents without one",
    (GEMINI, r"/contents/.*/(functionResponse|function_response)/name"): "repeats what the call says",
    (GEMINI, r"/contents/.*/fileData/mimeType"): "says whether the URL is that of an image or of a file",
}  # fmt: skip

Known = Callable[[Place, tuple[str, ...]], bool]  # whether a writer's own entries are about a place


def problem(
    document: Any, place: Place, base: Outcome, run: Callable[[Any], Outcome], known: Known
) -> str | None:
    """What got lost with a value, None when nothing did."""
    changed, signs = planted(document, place, token())
    try:
        out, losses = run(changed)
    except (RemoteProtocolError, RequestRefused) as error:
        if not error.path:
            return f"{place.path}: refused without a place: {error}"
        # One of a closed set of values: without it the output must change.
        if _means_nothing(document, place) or _without(document, place, run) != base:
            return None
        return f"{place.path} ({place.pattern}): nobody misses {str(place.value)[:40]!r}"
    # A ledger has Gemini's names in lowerCamelCase, which have a second spelling.
    named = re.sub(r"_([a-z])", lambda found: found[1].upper(), place.path)
    if any(sign in out for sign in signs) or known(place, losses):
        return None
    if covered(place.path, losses) or covered(named, losses):
        return None
    if not signs and (out, losses) != base:
        return None
    return f"{place.path} ({place.pattern}): {str(place.value)[:40]!r}"


def _means_nothing(document: Any, place: Place) -> bool:
    """Whether a value is what counts where none is."""
    if place.path in ("/tool_choice", "/tool_choice/type"):
        return "tools" not in document or place.value == "auto"
    return (steps_of(place.path)[-1], place.value) in (
        ("index", 0),
        ("n", 1),
        ("candidateCount", 1),
        ("mode", "AUTO"),
        ("0", "TEXT"),  # the modality of all responses
        ("mime_type", "application/pdf"),  # the data says it, too
        ("type", "function"),
        ("background", False),
    )


def _without(document: Any, place: Place, run: Callable[[Any], Outcome]) -> Outcome | None:
    """What comes out without the value, None where it has to be there."""
    try:
        return run(removed(document, place))
    except (RemoteProtocolError, RequestRefused):
        return None


# A writer that cannot print one of these names it by its own place: it never saw the upstream's.
_WRITERS = re.compile(r"/(logprobs|phase|explanation|service_tier|cache_write|searches)(/|$)")
# Names of the protocols for the same.
_OTHER_NAMES = (
    (r"/serviceTier$", "/service_tier"),
    (r"/logprobsResult/", "/logprobs/"),
    (r"/(cache_write_tokens(_details/.*)?|cache_creation_input_tokens)$", "/cache_write"),
    (r"/(web_search_requests|web_search/num_requests)$", "/searches"),
)


def covered_by_writer(place: Place, losses: tuple[str, ...]) -> bool:
    path = place.path
    for pattern, name in _OTHER_NAMES:
        path = re.sub(pattern, name, path)
    found = _WRITERS.search(path)
    return found is not None and any(found[1] in loss.split("/") for loss in losses)


# The simple API's writer names everything so: what it lost, and the places of the upstreams where that stood.
_SIMPLE_WRITER = {
    "reasoning": r".*/((reasoning|thinking|redacted_thinking)[^/]*(/.*)?|parts/\*/(text|thoughtSignature))",
    "tool_calls": r".*/(tool_calls|tool_use|function_call|functionCall|custom_tool_call)[^/]*(/.*)?",
    "stop_reason": r".*/(finish_reason|stop_reason|status|incomplete_details/reason)",
    "stop_details": r".*/stop_details(/.*)?",
    "refusal": r".*/(refusal|type)",
    "candidates": r".*/parts/\*/(executableCode|codeExecutionResult)(/.*)?",
    "usage": r".*/(tool_usage|usageMetadata)(/.*)?",
}


def covered_by_simple_writer(place: Place, losses: tuple[str, ...]) -> bool:
    names = {loss.split("/")[1] for loss in losses if loss}
    kind = place.value.get("type", "") if isinstance(place.value, dict) else ""
    where = f"{place.pattern}/{kind}" if kind else place.pattern
    return covered_by_writer(place, losses) or any(
        name in names and re.fullmatch(rule, where) for name, rule in _SIMPLE_WRITER.items()
    )


def is_meaningless(table: dict[tuple[str, str], str], protocol: str, pattern: str) -> bool:
    return any(name == protocol and re.fullmatch(rule, pattern) for name, rule in table)


def lost_in(
    document: Any,
    protocol: str,
    table: dict[tuple[str, str], str],
    run: Callable[[Any], Outcome],
    tried: set[str],
    known: Known | None = None,
) -> list[str]:
    """What a translation loses of a document. Kinds of places in `tried` are not tried again."""
    base = run(document)
    found = []
    for place in [*leaves(document), *objects(document)]:
        if place.pattern in tried or is_meaningless(table, protocol, place.pattern):
            continue
        tried.add(place.pattern)
        lost = problem(document, place, base, run, known or covered_by_writer)
        if lost is not None:
            found.append(lost)
    return found


MEANINGLESS_IN_RESPONSES: dict[tuple[str, str], str] = {
    (CHAT, r"/(id|created|model)"): "the client is told ours: an id of the exchange, its time, its alias",
    (CHAT, r"/object"): "has one value",
    (CHAT, r"/choices/\*/message/role"): "has one value, assistant",
    (CHAT, r"/choices/\*/message/tool_calls/\w+/type"): "the member beside it says the same",
    (CHAT, r"/choices/\*/message/(annotations|content/thinking/thinking)/\w+/type"): "the members say it",
    (CHAT, r"/choices/\*/message/content/text/type"): "a list of texts is one string to Chat clients",
    (CHAT, r"/usage/(total_tokens|prompt_cache_miss_tokens)"): "follows from the other figures",
    (MESSAGES, r"/(id|model)"): "the client is told ours",
    (MESSAGES, r"/(type|role|stop_details/type)"): "has one value",
    (MESSAGES, r"/usage/iterations/.*"): "a single one repeats the figures",
    (RESPONSES, r"/(id|created_at|completed_at|model)"): "the client is told ours",
    (RESPONSES, r"/object"): "has one value",
    (RESPONSES, r"/output/message.*/role"): "has one value, assistant",
    (RESPONSES, r"/output/[^/]*/(id|status)"): "names an item of the vendor's, and its state in the stream",
    (RESPONSES, r"/usage/total_tokens"): "follows from the other figures",
    (RESPONSES, r"/output_text"): "all texts once more",
    (RESPONSES, ECHO): "repeats the request",
    (GEMINI, r"/(modelVersion|responseId|createTime|usageMetadata/trafficType)"): "ours, or about the bill",
    (GEMINI, r"/candidates/\*/content/role"): "has one value, model",
    (GEMINI, r"/candidates/\*/avgLogprobs"): "follows from the log probabilities",
    (GEMINI, r".*/safetyRatings/\*/category"): "says what the rating beside it is about",
    (GEMINI, r"/usageMetadata/totalTokenCount"): "follows from the other figures",
    (GEMINI, r"/usageMetadata/\w+Details/\*/tokenCount"): "the part of a figure that one modality has",
    **dict.fromkeys(BOOKKEEPING.items(), "the server's own bookkeeping"),
}


# Frames whose members repeat other frames or have no meaning: changes there may be lost.
REPEATS = re.compile(
    r"response\.(created|queued|in_progress|output_item\.added|content_part\..*|reasoning_summary_part\..*"
    r"|.*\.done|(mcp_list_tools|\w+_call)\..*)|ping|\[DONE\]"
    r"|message_stop|content_block_stop|keepalive"
)
MEANINGLESS_IN_FRAMES: dict[tuple[str, str], str] = {
    (CHAT, r"/choices/\*/message/.*"): "some servers put the whole message beside each delta",
    (RESPONSES, r"/response/output/.*"): "says the finished items again",
    (MESSAGES, r"/content_block/input/.*"): "the deltas say it",
    (RESPONSES, "/response" + ECHO): "repeats the request",
    **dict.fromkeys(BOOKKEEPING.items(), "the server's own bookkeeping"),
}


def lost_in_frames(upstream: str, client: str, frames: list[Any], tried: set[str]) -> list[str]:
    """Unknown members of frames that come to nothing: not in the output, and no new entry in the ledger."""
    base = streamed(upstream, client, frames)
    found = []
    for number, frame in enumerate(frames):
        kind = frame.get("type", "chunk") if isinstance(frame, dict) else str(frame)
        if REPEATS.fullmatch(kind):
            continue
        for place in objects(frame):
            name = f"{kind}{place.pattern}"
            if name in tried or is_meaningless(MEANINGLESS_IN_FRAMES, upstream, place.pattern):
                continue
            tried.add(name)
            changed, signs = planted(frame, place, token())
            try:
                out, losses = streamed(upstream, client, [*frames[:number], changed, *frames[number + 1 :]])
            except (RemoteProtocolError, RequestRefused):
                continue
            if any(sign in out for sign in signs) or not set(losses) <= set(base[1]):
                continue
            known = covered_by_simple_writer if client == SIMPLE_EVENTS else covered_by_writer
            if not (covered_around(place, frame, losses) or known(place, losses)):
                found.append(f"{name} in frame {number}")
    return found


def covered_around(place: Place, frame: Any, losses: tuple[str, ...]) -> bool:
    """Whether a member around the place, or the block or item that the frame is about, is in the ledger."""
    whole = {f"/content/{frame.get('index')}", f"/output/{frame.get('output_index')}"}
    around = set(steps_of(place.path)[:-1])
    return any(loss in whole or loss.rpartition("/")[2] in around for loss in losses)
