"""The oracle over the recordings: the vendors' own streams pass, and each stream means something."""

import re

import corpus
import pytest
from oracle import (
    CHAT,
    GEMINI,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    Stop,
    check_stream,
    compare,
    meaning_of_stream,
)

# What the vendors' own servers do beside their documents or our stricter rules, with the reason it is harmless
# in a recording and still forbidden in what we send. docs/diagnosing.md explains the findings of `dragoman lint`.
VENDOR_DEVIATIONS: dict[str, list[tuple[str, str]]] = {
    CHAT: [],
    MESSAGES: [
        (r"absent \(null is allowed|messages-nullable", "recorded before the member existed, or left out where null"),
        (r"messages-input-empty", "a call without arguments may have no input at all; we owe {}"),
        (r"content_block\.name: Input should be 'web_search'", "a beta server tool in a stable block type"),
        (r"sse-end", "the recording lost the last newline"),
    ],
    GEMINI: [(r"functionCall/id: .* id is absent", "models up to 3.0 give their calls no ids; we owe one")],
    RESPONSES: [
        (r"absent \(null is allowed|responses-nullable", "recorded before the member existed, or left out where null"),
        (r"cache_write_tokens(: Field required| is absent)", "recorded before the member was required"),
        (r"(frequency_penalty|presence_penalty|content_filters|tools\.0\.n): unknown", "echoed beside the types"),
        (r"item\.action[.:]", "a search is added without its action; its sources may be of type api"),
        (r"image_generation_call.*the final output is not the done items", "an image is generating to the last"),
        (r"unknown event 'keepalive'|unknown type 'keepalive'", "sent in silence, absent from the SDK"),
        (r"responses-item-status: done with", "an image is done while it is generating"),
        (r"responses-content: an empty part", "a message may follow an image without text"),
        (r"sequence_number", "an old recording without sequence numbers"),
    ],
}  # fmt: skip
OFFICIAL = [recording for recording in corpus.recordings() if recording.official]


def test_official_recordings_pass_their_own_protocol() -> None:
    """The vendors' own streams keep the rules, apart from the table of known deviations."""
    used: set[tuple[str, str]] = set()
    problems = []
    for recording in OFFICIAL:
        include_usage = bool(((recording.request or {}).get("stream_options") or {}).get("include_usage"))
        include_usage = include_usage or "usage_chunk_empty_choices" in recording.features
        for problem in check_stream(recording.protocol, recording.read(), include_usage=include_usage):
            known = {
                row[0]
                for row in VENDOR_DEVIATIONS[recording.protocol]
                if re.search(row[0], f"{recording.name}: {problem}")
            }
            used |= {(recording.protocol, pattern) for pattern in known}
            if not known:
                problems.append(f"{recording.name}: {problem}")
    assert problems == []
    rows = {(protocol, row[0]) for protocol, table in VENDOR_DEVIATIONS.items() for row in table}
    assert rows - used == set(), "rows that excuse nothing"
    assert {recording.protocol for recording in OFFICIAL} == set(PROTOCOL_NAMES)


@pytest.mark.parametrize(
    "recording", [pytest.param(recording, id=recording.name) for recording in corpus.recordings()]
)
def test_recordings_have_a_meaning(recording: corpus.Recording) -> None:
    """Each recorded stream says something, ends somehow, and means what it means."""
    meaning = meaning_of_stream(recording.protocol, recording.read())
    cut = "derived" in recording.features and recording.name != "gemini/derived_error_data_01"
    assert (meaning.stop is Stop.CUT) == cut
    # Where nothing was said, the limit or a refusal took it all.
    assert meaning.blocks or meaning.stop in (Stop.LENGTH, Stop.FILTER)
    if not cut:
        assert compare(meaning, meaning, recording.protocol) == []
