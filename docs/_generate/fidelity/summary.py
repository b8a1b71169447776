"""The page "What you lose": the rows of the matrix grouped by topic, in five lines for each pair of protocols."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fidelity.judge import Fate, cells_of
from fidelity.page import ANSWERS, REQUESTS, TITLES, others
from fidelity.run import PROTOCOL_NAMES

_HEAD = """\
# What you lose

Where client and upstream speak the same protocol, nothing is lost: the bytes pass unchanged, except for the model's
name. For the other pairs this page has five lines each. `make docs` makes it from the [fidelity matrix](fidelity.md),
for an unknown upstream; the vendors' own hosts accept more. The matrix has every field, and each loss
in words.

- **As it is**: the other protocol has a field for it.
- **In another form**: it arrives, but says less or says it differently. The [ledger](translation.md) has an entry.
- **Wrapped**: the client gets it as an opaque value, and the upstream that made it gets it back unchanged.
- **Left out**: it does not arrive. The ledger has an entry.
- **Refused**: the client gets an error, because it would make no sense without it.

A star marks what is true of only some fields or kinds of a topic. Reasoning that only its vendor can read is lost if a
conversation continues with another vendor or model; with the same one it is kept. Stored conversations and background
responses, which other protocols do not have, are there at any upstream if the gateway has a [response store](state.md).
"""

# The first topic whose pattern matches the name of a row has it. What matches none is not named on this page.
_TOPICS = [
    (topic, re.compile(pattern))
    for topic, pattern in (
        ("unknown fields, blocks and tools", r"an?y? unknown .*|x_field"),
        ("prompt cache marks and keys", r".*cache_(control|breakpoint).*|prompt_cache_.*"),
        ("log probabilities", r".*[lL]ogprobs.*"),
        ("audio", r".*audio.*|speechConfig"),
        ("video", r"video of .*"),
        ("`n`", r"n|candidateCount"),
        ("stop sequences", r"stop|stop_sequences?|stopSequences"),
        ("`seed`", r"seed"),
        ("penalties", r".*(_p|P)enalty"),
        ("`logit_bias`", r"logit_bias"),
        ("`top_k`", r"top_k|topK"),
        ("temperature and `top_p`", r"temperature|top_p|topP"),
        ("verbosity", r"(text\.)?verbosity"),
        ("`metadata`", r"metadata|labels"),
        ("`store`", r"store"),
        ("moderation", r"moderation|safety(Settings|Ratings)|modelArmorConfig"),
        ("names of messages", r"name of a system.*|assistant: name"),
        ("JSON mode", r"json_object|responseMimeType"),
        ("schema output", r"json_schema|output_config\.format|output_format|response(Json)?Schema"),
        ("reasoning efforts", r"reasoning_effort|(reasoning|output_config)\.effort|.*thinkingLevel"),
        (
            "reasoning budgets",
            r"reasoning\.max_tokens|thinking\.budget_tokens|thinking enabled, with a budget|.*thinkingBudget",
        ),
        (
            "settings of reasoning summaries",
            r"reasoning\.(generate_)?summary|thinking\.display|.*includeThoughts",
        ),
        (
            "thinking and signatures",
            r"(redacted_)?thinking|thinking, (un)?signed|signature_delta|thinking_delta"
            r"|(model: )?(thought, (un)?signed|thoughtSignature of .*)",
        ),
        ("reasoning items", r"reasoning (in the open|with .*)|response\.reasoning_\w+\.delta"),
        ("plain reasoning", r"(assistant: )?reasoning(_content)?"),
        ("reasoning of other vendors", r"(assistant: )?(reasoning\.\w+ of .*|thinking_blocks)"),
        ("refusals", r".*refus\w+|response\.refusal\.delta"),
        (
            "system messages in mid-conversation",
            r"(developer|system) in mid-conversation|system|message of a (system|developer)",
        ),
        ("free-text tools", r"custom|custom_tool_call|response\.custom_tool_call_input\.delta"),
        ("grammars of free-text tools", r"format of (type grammar|custom)"),
        (
            "function tools",
            r"tools|functions|function|function_call|tool_use|tool_calls(: function)?|without a type"
            r"|(model: )?functionCall|functionResponse",
        ),
        (
            "tool choice",
            r"tool_choice|auto|required|any|tool|none|AUTO|NONE|ANY|VALIDATED|allowedFunctionNames with one name",
        ),
        ("lists of allowed tools", r"allowed_tools|allowedFunctionNames with several names"),
        ("namespaces of tools", r"namespace.*"),
        (
            "images",
            r"image_url.*|image of (base64|a URL)|input_image of a (data URI|URL)"
            r"|image of (inlineData|a URL in fileData)",
        ),
        (
            "images and files in tool results",
            r"(result|output): (image( in parts)?|document|input_image|input_file)|tool: (image_url|file)",
        ),
        (
            "stored files",
            r"file of a file_id|(image|document|input_image|input_file) of a file|stored file .*",
        ),
        (
            "documents",
            r"file( of (plain text|inlineData))?|document of (base64|text|content|a URL)"
            r"|input_file of (a PDF|plain text|a URL)",
        ),
        ("search results as input", r"(result: )?search_result"),
        ("`is_error`", r"is_error|error of a functionResponse"),
        (
            "citations",
            r".*(_location|_citation|file_path)|(assistant: )?annotations|citations(_delta| of a document)?"
            r"|(citation|grounding)Metadata",
        ),
        ("containers", r"container( .*)?"),
        ("editing of the context", r".*context_management.*|truncation"),
        ("compacted conversations", r"compaction|compaction_\w+"),
        (
            "stored conversations",
            r"thread .*|conversation .*|previous_response_id|item_reference|prompt"
            r"|cachedContent|continuationToken",
        ),
        ("background responses", r"background.*"),
        ("fallbacks", r"fallback.*"),
        (
            "client tools (bash, computer, shell) and their calls",
            r"(bash|computer|memory|text_editor)_\d+|computer(_use_preview)?|((local_)?shell|apply_patch|tool_search)"
            r"|(local_shell|shell|apply_patch|computer|tool_search)_(call|output|call_output)",
        ),
        (
            "vendor tools (search, code, MCP) and their results",
            r"(web_search|web_fetch|code_execution|advisor)_\d+|tool_search_tool\w*|.*toolset_?\d*|mcp(_\w+| .*)?"
            r"|.*web_search.*|server_tool_use|\w+_tool_result( .*)?"
            r"|(file_search|image_generation|code_interpreter)(_call)?|program(_output|matic_tool_calling)?"
            r"|container_upload|googleSearch|codeExecution|urlContext|googleMaps"
            r"|(model: )?(executableCode|codeExecutionResult)",
        ),
        ("phases of messages", r"phase .*"),
        ("asynchronous and nested calls", r"(async|caller|behavior|scheduling) of .*"),
        (
            "text",
            r"text|content|messages|contents|systemInstruction|content of the role .*|text_delta"
            r"|response\.output_text\.delta|(assistant: )?(in|out)put_text",
        ),
        ("usage", r"(in|out)put_tokens|(prompt|completion)_tokens|(prompt|candidates)TokenCount"),
    )
]

_LINES = (
    ("As it is", (Fate.CARRIED, Fate.BY_US)),
    ("In another form", (Fate.ALTERED,)),
    ("Wrapped", (Fate.WRAPPED,)),
    ("Left out", (Fate.LEFT_OUT, Fate.LOST)),
    ("Refused", (Fate.REFUSED,)),
)


def summary() -> str:
    """Return the text of what-you-lose.md."""
    lines = [_HEAD]
    for client in PROTOCOL_NAMES:
        for upstream in others(client):
            lines += [
                f"## {TITLES[client]} client, {TITLES[upstream]} upstream",
                "",
                *_pair(client, upstream),
                "",
            ]
    return "\n".join(lines)


def _pair(client: str, upstream: str) -> Iterator[str]:
    requests = [(row.name, cells_of(client, upstream, row)[0].fate) for row in REQUESTS[client]]
    responses = [(row.name, cells_of(upstream, client, row)[0].fate) for row in ANSWERS[upstream]]
    found = [_by_topic(rows) for rows in (requests, responses)]
    for title, fates in _LINES:
        parts = []
        for label, topics in zip(("requests", "responses"), found, strict=True):
            named = [
                topic if all(each in fates for each in all_fates) else f"{topic}\\*"
                for topic, all_fates in topics.items()
                # What arrives in part is in the other lines already.
                if (all if Fate.CARRIED in fates else any)(each in fates for each in all_fates)
            ]
            if named:
                parts.append(f"*{label}:* {', '.join(named)}")
        yield f"- **{title}**: {'; '.join(parts) or 'nothing'}"


def _by_topic(rows: list[tuple[str, Fate]]) -> dict[str, list[Fate]]:
    """Return the fates of the rows of each topic, in the order of the topics."""
    found: dict[str, list[Fate]] = {topic: [] for topic, _ in _TOPICS}
    for name, fate in rows:
        plain = name.replace("`", "")
        topic = next((topic for topic, pattern in _TOPICS if pattern.fullmatch(plain)), None)
        if topic is not None and fate is not Fate.NOTHING:
            found[topic].append(fate)
    return {topic: fates for topic, fates in found.items() if fates}
