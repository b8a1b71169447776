"""Items of tools in a client's input: calls of tools that the client runs, their results, and hosted tools as text.

A call's input is the JSON of the item's fields, as the function instead of the tool takes it, and a result becomes
text and images, so for other upstreams both are ordinary. The provider's own items are rendered as text for models
without those tools: what was done and what came of it, without ids. Items that only their vendor can use have no text.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.native import extra_of
from dragoman._ir.request import Media, Message, OpaquePart, Text, ToolCall, ToolResult
from dragoman._ir.shape import OBJECT, STRING
from dragoman._wire.json import (
    JSON,
    JSONObject,
    encode_text,
    is_object_text,
    object_or_empty,
    objects_in,
    text_or_none,
)
from dragoman.protocols.openai_responses.checks import (
    CHECKS,
    read_media,
    required_text,
)
from dragoman.protocols.openai_responses.client_tools import CLIENT_TOOLS
from dragoman.protocols.openai_responses.shapes import INPUT_SHAPES, SCREEN_SHAPE


def read_client_call(item: JSONObject, path: str) -> Message:
    """Read a call as an assistant's message. Raises RemoteProtocolError for a call without its fields."""
    kind, text = _call_input(item, path)
    call = ToolCall(
        required_text(item, "call_id", path),
        CLIENT_TOOLS[kind].name,
        text,
        path=path,
        hosted=kind,
        native=item,
        shape=INPUT_SHAPES[item["type"]],
    )
    return Message("assistant", (call,), path)


def _required_object(item: JSONObject, path: str, name: str) -> JSONObject:
    value: JSONObject = CHECKS.required(item, name, path, OBJECT)
    return {key: member for key, member in value.items() if member is not None}


# Types of calls -> kind of the tool, and the member with its arguments.
_ARGUMENTS = {
    "apply_patch_call": ("apply_patch", "operation"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
}


def _call_input(item: JSONObject, path: str) -> tuple[str, str]:
    """Return the kind of the tool that was called, and the arguments of the function in its place."""
    if item["type"] == "tool_search_call":
        arguments = item.get("arguments")
        if type(arguments) is str and is_object_text(arguments):
            return "tool_search", arguments
        return "tool_search", encode_text(arguments if type(arguments) is dict else {"query": arguments})
    if item["type"] == "computer_call":
        if type(item.get("actions")) is list:
            return "computer", encode_text({"actions": item["actions"]})
        return "computer_use_preview", encode_text({"action": _required_object(item, path, "action")})
    kind, member = _ARGUMENTS[item["type"]]
    fields = _required_object(item, path, member)
    if kind == "local_shell":
        if fields.get("type") == "exec":
            del fields["type"]  # the only type
        if not fields.get("env", True):
            del fields["env"]
    return kind, encode_text(fields)


def read_client_output(item: JSONObject, path: str, call_id: str, kind: str) -> Message:
    """Read the result of a tool of this kind as a user's message."""
    is_error: bool | None = None
    part: Text | Media
    if kind == "apply_patch":
        is_error = item.get("status") == "failed"
        part = Text(
            CHECKS.optional(item, "output", path, STRING) or str(item.get("status")), path=f"{path}/output"
        )
    elif kind == "shell":
        part = Text(_render_shell_output(item.get("output")), path=f"{path}/output")
    elif kind == "tool_search":
        part = Text(render_found_tools(item), path=f"{path}/tools")
    elif kind == "local_shell":
        part = Text(_as_text(item.get("output")), path=f"{path}/output")
    else:
        screen = _required_object(item, path, "output")
        part = read_media("image", screen, f"{path}/output", **extra_of(screen, SCREEN_SHAPE))
    parts: tuple[Text | Media | OpaquePart, ...] = (part,)
    result = ToolResult(
        call_id,
        parts,
        is_error=is_error,
        path=path,
        hosted=kind,
        native=item,
        shape=INPUT_SHAPES[item["type"]],
    )
    return Message("user", (result,), path)


def _as_text(value: JSON) -> str:
    return value if type(value) is str else encode_text(value)


def _render_shell_output(output: JSON) -> str:
    """Render the commands' output and exit codes."""
    if type(output) is not list:
        return _as_text(output)
    lines: list[str] = []
    for entry in output:
        found = entry if type(entry) is dict else {"stdout": _as_text(entry)}
        outcome = object_or_empty(found.get("outcome"))
        if found.get("stdout"):
            lines.append(_as_text(found["stdout"]).rstrip("\n"))
        if found.get("stderr"):
            lines.append(f"stderr:\n{_as_text(found['stderr'])}".rstrip("\n"))
        if outcome.get("type") == "exit":
            lines.append(f"exit code: {outcome.get('exit_code')}")
        elif outcome:
            lines.append("timed out" if outcome.get("type") == "timeout" else _as_text(outcome))
    return "\n".join(lines)


_FOUND = "Found: "


def render_text(kind: str, item: JSONObject) -> str | None:
    """Return an item as text, None if its type has none."""
    render = _RENDERERS.get(kind)
    if render is None:
        return None
    text = _fill(render, item) if isinstance(render, str) else render(item)
    status = item.get("status")
    return f"{text} ({status})" if status in ("failed", "incomplete") else text


def _fill(template: str, item: JSONObject) -> str:
    return template.format(
        arguments=_as_text(item.get("arguments")),
        code=text_or_none(item.get("code")) or "",
        name=text_or_none(item.get("name")) or "a tool",
        output=_as_text(item.get("output")),
        result=text_or_none(item.get("result")) or "",
        server=f"the MCP server {text_or_none(item.get('server_label')) or ''}".rstrip(),
    )


def _texts(value: JSON) -> list[str]:
    return [each for each in value if type(each) is str and each] if type(value) is list else []


def _quoted(texts: list[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def search_queries(action: JSONObject) -> list[str]:
    """Return the queries of a search. `query` is the old form of `queries`."""
    query = text_or_none(action.get("query"))
    queries = _texts(action.get("queries"))
    return queries if query is None or query in queries else [query, *queries]


def _render_web_search(item: JSONObject) -> str:
    action = object_or_empty(item.get("action"))
    url, pattern = text_or_none(action.get("url")), text_or_none(action.get("pattern"))
    if pattern is not None:
        return f'Looked for "{pattern}" on the web page {url or ""}'.rstrip()
    if url is not None or action.get("type") == "open_page":
        return f"Opened the web page {url or ''}".rstrip()
    sources = [
        text_or_none(each.get("url")) or text_or_none(each.get("name"))
        for each in objects_in(action.get("sources"))
    ]
    text = f"Searched the web for {_quoted(search_queries(action))}".removesuffix(" for ")
    return "\n".join([text, *(f"{_FOUND}{source}" for source in sources if source)])


def _render_file_search(item: JSONObject) -> str:
    lines = [f"Searched files for {_quoted(_texts(item.get('queries')))}"]
    for result in objects_in(item.get("results")):
        name = text_or_none(result.get("filename")) or text_or_none(result.get("file_id")) or "a file"
        lines.append(f"{_FOUND}{name}: {text_or_none(result.get('text')) or ''}".rstrip())
    return "\n".join(lines)


def _render_code(item: JSONObject) -> str:
    lines = [_fill("Ran this code:\n{code}", item)]
    for output in objects_in(item.get("outputs")):
        logs = text_or_none(output.get("logs"))
        url = text_or_none(output.get("url"))
        if logs is not None:
            lines.append(f"Output:\n{logs}")
        elif url is not None:
            lines.append(f"Output: the image {url}")
    return "\n".join(lines)


def _render_image(item: JSONObject) -> str:
    prompt = text_or_none(item.get("revised_prompt"))
    text = "Generated an image" if prompt is None else f"Generated an image: {prompt}"
    return text + _render_error(item)


def _render_error(item: JSONObject) -> str:
    error = item.get("error")
    if not error:
        return ""
    message = text_or_none(error.get("message")) if type(error) is dict else text_or_none(error)
    return f"\nError: {message or encode_text(error)}"


def _render_mcp_tools(item: JSONObject) -> str:
    names = [text_or_none(tool.get("name")) or "" for tool in objects_in(item.get("tools"))]
    return f"{_fill('The tools of {server}', item)}: {', '.join(names)}{_render_error(item)}"


def _render_mcp_call(item: JSONObject) -> str:
    text = _fill("Called {name} of {server} with {arguments}", item) + _render_error(item)
    output = text_or_none(item.get("output"))
    return text if output is None else f"{text}\nOutput:\n{output}"


def _render_approval_response(item: JSONObject) -> str:
    reason = text_or_none(item.get("reason"))
    text = "The call is approved" if item.get("approve") is True else "The call is not approved"
    return text if reason is None else f"{text}: {reason}"


def render_found_tools(item: JSONObject) -> str:
    """Render the names of the tools that a search found. Their definitions are among the tools."""
    names = _tool_names(item.get("tools"))
    return f"Found the tools: {', '.join(names)}" if names else "Found no tools"


def _tool_names(tools: JSON) -> list[str]:
    """Return the names of tools, those in namespaces with its name before them, as models get them."""
    names: list[str] = []
    for tool in objects_in(tools):
        name = text_or_none(tool.get("name")) or text_or_none(tool.get("type")) or ""
        inner = _tool_names(tool.get("tools"))
        names += [f"{name}__{each}" for each in inner] if inner else [name]
    return names


# Templates, see _fill, and functions for items that are more than a text.
_RENDERERS: dict[str, str | Callable[[JSONObject], str]] = {
    "code_interpreter_call": _render_code,
    "custom_tool_call_output": "Output of {name}:\n{output}",  # names no call
    "file_search_call": _render_file_search,
    "function_call_output": "Output of {name}:\n{output}",
    "image_generation_call": _render_image,
    "mcp_approval_request": "Asked whether {name} of {server} may be called with {arguments}",
    "mcp_approval_response": _render_approval_response,
    "mcp_call": _render_mcp_call,
    "mcp_list_tools": _render_mcp_tools,
    "program": "Ran this program:\n{code}",
    "program_output": "The program gave:\n{result}",
    "tool_search_call": "Searched for tools: {arguments}",
    "tool_search_output": render_found_tools,
    "web_search_call": _render_web_search,
}
