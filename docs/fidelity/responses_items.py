"""Probes for the items and content parts that clients of Responses can send."""

from __future__ import annotations

from typing import Any

from fidelity.probe import DATA, PICTURE, SCHEMA, Body, Probe, kinds, probe

_POINT = {"mode": "explicit", "ttl": "30m"}
_PROGRAM = {"type": "program", "caller_id": "Zqcaller"}
_SHOT = {"type": "computer_screenshot", "image_url": PICTURE}
_SHELL = {"commands": ["Zqcommand"], "timeout_ms": 5, "max_output_length": 9}
_EXEC = {
    "type": "exec",
    "command": ["Zqcommand"],
    "env": {"A": "Zqenv"},
    "working_directory": "Zqfolder",
    "user": "Zqwho",
    "timeout_ms": 5,
}
_CHECK = {"id": "Zqcheck", "code": "Zqcode", "message": "Zqwarning"}
_PATCH = {"type": "update_file", "diff": "Zqdiff", "path": "Zqpath"}
_NEW = {"type": "function", "name": "Zqname", "description": "Zqtext", "parameters": SCHEMA, "strict": False}


def _input(*items: Body) -> Body:
    hi, go = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Go on"}
    return {"model": "m", "input": [hi, *items, go]}


def _alone(item: Body) -> tuple[Body, str]:
    return _input(item), "/input/1"


def _item(called: str, *items: Body, at: int = 0, nothing: str = "") -> Probe:
    """Return a row. at: the item that is the subject; the others are required around it."""
    return probe("Items", called, _input(*items), f"/input/{at + 1}", nothing=nothing)


def _member(called: str, path: str, *items: Body, at: int = 0, nothing: str = "") -> Probe:
    return probe("Items", called, _input(*items), f"/input/{at + 1}/{path}", nothing=nothing)


_CALL = {"type": "function_call", "call_id": "call_1", "name": "see", "arguments": "{}"}
_DONE = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
_FREE = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "x"}
_FREE_DONE = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"}
_SAID = {"type": "output_text", "text": "Well", "annotations": []}
_SPOKEN = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [_SAID]}


def _pair(call: Body, output: Body) -> list[Probe]:
    """Return rows about a call of a client tool and its output."""
    return [
        _item(f"`{call['type']}`", call, output),
        _item(f"`{output['type']}`", call, output, at=1),
    ]


_CLIENT_RUN = [
    *_pair(
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "Zqid",
            "pending_safety_checks": [_CHECK],
            "status": "completed",
            "actions": [{"type": "type", "text": "Zqtyped"}, {"type": "screenshot"}],
        },
        {
            "type": "computer_call_output",
            "call_id": "Zqid",
            "output": _SHOT,
            "acknowledged_safety_checks": [_CHECK],
        },
    ),
    *_pair(
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "Zqid",
            "action": _EXEC,
            "status": "completed",
        },
        {"type": "local_shell_call_output", "id": "Zqid", "output": "Zqout"},
    ),
    *_pair(
        {"type": "shell_call", "call_id": "Zqid", "action": _SHELL},
        {
            "type": "shell_call_output",
            "call_id": "Zqid",
            "max_output_length": 9,
            "output": [
                {"stdout": "Zqout", "stderr": "Zqerr", "outcome": {"type": "exit", "exit_code": 3}},
            ],
        },
    ),
    *_pair(
        {"type": "apply_patch_call", "call_id": "Zqid", "operation": _PATCH, "status": "completed"},
        {"type": "apply_patch_call_output", "call_id": "Zqid", "status": "failed", "output": "Zqout"},
    ),
    *_pair(
        {
            "type": "tool_search_call",
            "call_id": "Zqid",
            "execution": "client",
            "arguments": {"query": "Zqquery"},
        },
        {"type": "tool_search_output", "call_id": "Zqid", "execution": "client", "tools": [_NEW]},
    ),
]

_PROVIDED = kinds(
    "Items",
    _alone,
    {
        "type": "file_search_call",
        "id": "fs_1",
        "queries": ["Zqquery"],
        "status": "completed",
        "results": [{"file_id": "Zqfile", "filename": "Zqwords.txt", "score": 0.5, "text": "Zqfound"}],
    },
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {
            "type": "search",
            "query": "Zqquery",
            "sources": [{"type": "url", "url": "https://example.com/Zqurl"}],
        },
    },
    {
        "type": "image_generation_call",
        "id": "ig_1",
        "result": DATA,
        "revised_prompt": "Zqprompt",
        "status": "completed",
    },
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "Zqcode",
        "container_id": "Zqcontainer",
        "outputs": [{"type": "logs", "logs": "Zqlogs"}],
        "status": "completed",
    },
    {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "Zqserver",
        "tools": [{"name": "Zqname", "description": "Zqtext", "input_schema": {"type": "object"}}],
    },
    {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "arguments": '{"city":"Zqcity"}',
        "name": "Zqname",
        "server_label": "Zqserver",
    },
    {
        "type": "mcp_approval_response",
        "approval_request_id": "Zqid",
        "approve": True,
        "reason": "Zqreason",
    },
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "arguments": '{"city":"Zqcity"}',
        "name": "Zqname",
        "server_label": "Zqserver",
        "output": "Zqout",
        "status": "completed",
    },
    {
        "type": "program",
        "id": "prog_1",
        "call_id": "Zqid",
        "code": "Zqcode",
        "fingerprint": "Zqprint",
    },
    {
        "type": "program_output",
        "id": "po_1",
        "call_id": "Zqid",
        "result": "Zqresult",
        "status": "completed",
    },
)

ITEMS: list[Probe] = [
    _item("`message` with a string", {"role": "user", "content": "Zqwords"}),
    _item("`message` of a system", {"role": "system", "content": "Zqwords"}),
    _item("`message` of a developer", {"role": "developer", "content": "Zqwords"}),
    _item("`message` of an assistant, in the short form", {"role": "assistant", "content": "Zqwords"}),
    _item("`message` of an assistant", {**_SPOKEN, "content": [{**_SAID, "text": "Zqwords"}]}),
    _member("`phase` of a message", "phase", {**_SPOKEN, "phase": "commentary"}),
    _member(
        "`id` of a message",
        "id",
        {**_SPOKEN, "id": "Zqid"},
        nothing="names the item in the vendor's store",
    ),
    _item(
        "`function_call`",
        {**_CALL, "call_id": "Zqid", "name": "Zqname", "arguments": '{"city":"Zqcity"}'},
        {**_DONE, "call_id": "Zqid"},
    ),
    _member("`namespace` of a call", "namespace", {**_CALL, "namespace": "Zqspace"}, _DONE),
    _member("`async` of a call", "async", {**_CALL, "async": True}, _DONE),
    _member("`caller` of a call", "caller", {**_CALL, "caller": _PROGRAM}, _DONE),
    _item("`function_call_output`", _CALL, {**_DONE, "output": "Zqdone"}, at=1),
    _member("`caller` of an output", "caller", _CALL, {**_DONE, "caller": _PROGRAM}, at=1),
    _item(
        "`custom_tool_call`",
        {**_FREE, "call_id": "Zqid", "name": "Zqname", "input": "Zqinput"},
        {**_FREE_DONE, "call_id": "Zqid"},
    ),
    _member("`async` of a custom call", "async", {**_FREE, "async": True}, _FREE_DONE),
    _item("`custom_tool_call_output`", _FREE, {**_FREE_DONE, "output": "Zqdone"}, at=1),
    _item(
        "`reasoning` with ciphertext",
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Zqshort"}],
            "encrypted_content": "Zqcipher",
        },
    ),
    _item(
        "`reasoning` in the open",
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Zqthought"}],
        },
    ),
    _item("`compaction`", {"type": "compaction", "encrypted_content": "Zqcipher"}),
    probe(
        "Items",
        "`compaction_trigger`",
        {"model": "m", "input": [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]},
        "/input/1",
    ),
    _item("`item_reference`", {"type": "item_reference", "id": "Zqid"}),
    _item("`additional_tools`", {"type": "additional_tools", "role": "developer", "tools": [_NEW]}),
    _item(
        "`configuration_update`",
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
    ),
    _member(
        "`text` of a `configuration_update`",
        "text",
        {
            "type": "configuration_update",
            "text": {"format": {"type": "json_schema", "name": "Zqname", "schema": SCHEMA}},
        },
    ),
    *_CLIENT_RUN,
    *_PROVIDED,
    _item("an item that nobody knows", {"type": "x_item", "words": "Zqwords"}),
]


def _asked(part: Body) -> tuple[Body, str]:
    said = {"role": "user", "content": [{"type": "input_text", "text": "Look"}, part]}
    return {"model": "m", "input": [said]}, "/input/0/content/1"


def _told(part: Body) -> tuple[Body, str]:
    return _input({**_SPOKEN, "content": [_SAID, part]}), "/input/1/content/1"


def _given(part: Body) -> tuple[Body, str]:
    output = {**_DONE, "output": [{"type": "input_text", "text": "done"}, part]}
    return _input(_CALL, output), "/input/2/output/1"


def _part(called: str, made: tuple[Body, str], member: str = "") -> Probe:
    body, place = made
    return probe("Content parts", called, body, f"{place}/{member}" if member else place)


_PAPER = {"type": "input_file", "file_data": f"data:application/pdf;base64,{DATA}", "filename": "Zqpaper.pdf"}
_WORDS = {"type": "input_file", "file_data": f"data:text/plain;base64,{DATA}", "filename": "Zqwords.txt"}
_IMAGE = {"type": "input_image", "image_url": PICTURE, "detail": "auto"}
_MORE = {"type": "input_text", "text": "more"}
_TOKEN = {
    "token": "Zqtoken",
    "bytes": [87],
    "logprob": -0.5,
    "top_logprobs": [{"token": "Zqother", "bytes": [88], "logprob": -1.5}],
}


def _annotation(**annotation: Any) -> Probe:
    text = {**_SAID, "annotations": [annotation]}
    body = _input({**_SPOKEN, "content": [text]})
    place = "/input/1/content/0/annotations/0"
    return probe("Annotations of a text", f"`{annotation['type']}`", body, place)


PARTS: list[Probe] = [
    _part("`input_text`", _asked({"type": "input_text", "text": "Zqtext"})),
    _part("`input_image` of a data URI", _asked(_IMAGE)),
    _part("`input_image` of a URL", _asked({**_IMAGE, "image_url": "https://example.com/Zqcat.png"})),
    _part(
        "`input_image` of a file",
        _asked({"type": "input_image", "file_id": "Zqfile", "detail": "auto"}),
    ),
    _part("`detail` of an image", _asked({**_IMAGE, "detail": "high"}), "detail"),
    _part("`input_file` of a PDF", _asked(_PAPER)),
    _part("`input_file` of plain text", _asked(_WORDS)),
    _part(
        "`input_file` of a URL",
        _asked({"type": "input_file", "file_url": "https://example.com/Zqpaper.pdf"}),
    ),
    _part("`input_file` of a file", _asked({"type": "input_file", "file_id": "Zqfile"})),
    _part("`detail` of a file", _asked({**_PAPER, "detail": "high"}), "detail"),
    _part(
        "`prompt_cache_breakpoint`",
        _asked({**_MORE, "prompt_cache_breakpoint": _POINT}),
        "prompt_cache_breakpoint",
    ),
    _part("a part that nobody knows", _asked({"type": "input_video", "url": "Zqurl"})),
    _part("assistant: `output_text`", _told({**_SAID, "text": "Zqwords"})),
    _part("assistant: `logprobs`", _told({**_SAID, "logprobs": [_TOKEN]}), "logprobs"),
    _part("assistant: `refusal`", _told({"type": "refusal", "refusal": "Zqrefusal"})),
    _part("output: `input_text`", _given({"type": "input_text", "text": "Zqtext"})),
    _part("output: `input_image`", _given(_IMAGE)),
    _part("output: `input_file`", _given(_PAPER)),
    _annotation(
        type="url_citation",
        url="https://example.com/Zqurl",
        title="Zqtitle",
        start_index=0,
        end_index=4,
    ),
    _annotation(type="file_citation", file_id="Zqfile", filename="Zqwords.txt", index=2),
    _annotation(
        type="container_file_citation",
        container_id="Zqcontainer",
        file_id="Zqfile",
        filename="Zqwords.txt",
        start_index=0,
        end_index=4,
    ),
    _annotation(type="file_path", file_id="Zqfile", index=2),
]
