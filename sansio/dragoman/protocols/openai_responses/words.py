"""What the provider's own items say, in plain words, for upstreams that do not know them.

Strategy: one small function an item type. A model that reads such a conversation must be able to tell what was done
and what came of it; it needs no ids. Items that say nothing to anybody but their maker have no function here.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._wire.json import JSON, JSONObject, encode_text
from dragoman.protocols.openai_responses.common import objects_of, text_of

_FOUND = "Found: "


def words_of(kind: str, item: JSONObject) -> str | None:
    """What an item of this type says, None when it says nothing in words."""
    say = _WORDS.get(kind)
    return None if say is None else say(item) + _outcome(item)


def _outcome(item: JSONObject) -> str:
    """A call that did not come to its end says so."""
    status = item.get("status")
    return f" ({status})" if status in ("failed", "incomplete") else ""


def _texts(value: JSON) -> list[str]:
    return [each for each in value if type(each) is str and each] if type(value) is list else []


def _quoted(texts: list[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)


def searches(action: JSONObject) -> list[str]:
    """What a search looked for. `query` is the old form of `queries`."""
    query = text_of(action.get("query"))
    queries = _texts(action.get("queries"))
    return queries if query is None or query in queries else [query, *queries]


def _web_search(item: JSONObject) -> str:
    found = item.get("action")
    action: JSONObject = found if type(found) is dict else {}
    url, pattern = text_of(action.get("url")), text_of(action.get("pattern"))
    if pattern is not None:
        return f'Looked for "{pattern}" on the web page {url or ""}'.rstrip()
    if url is not None or action.get("type") == "open_page":
        return f"Opened the web page {url or ''}".rstrip()
    sources = [
        text_of(each.get("url")) or text_of(each.get("name")) for each in objects_of(action.get("sources"))
    ]
    words = f"Searched the web for {_quoted(searches(action))}".removesuffix(" for ")
    return "\n".join([words, *(f"{_FOUND}{source}" for source in sources if source)])


def _file_search(item: JSONObject) -> str:
    lines = [f"Searched files for {_quoted(_texts(item.get('queries')))}"]
    for result in objects_of(item.get("results")):
        name = text_of(result.get("filename")) or text_of(result.get("file_id")) or "a file"
        lines.append(f"{_FOUND}{name}: {text_of(result.get('text')) or ''}".rstrip())
    return "\n".join(lines)


def _code(item: JSONObject) -> str:
    lines = [f"Ran this code:\n{text_of(item.get('code')) or ''}"]
    for output in objects_of(item.get("outputs")):
        logs = text_of(output.get("logs"))
        url = text_of(output.get("url"))
        if logs is not None:
            lines.append(f"Output:\n{logs}")
        elif url is not None:
            lines.append(f"Output: the image {url}")
    return "\n".join(lines)


def _image(item: JSONObject) -> str:
    prompt = text_of(item.get("revised_prompt"))
    words = "Generated an image" if prompt is None else f"Generated an image: {prompt}"
    return words + _error(item)


def _error(item: JSONObject) -> str:
    error = item.get("error")
    if not error:
        return ""
    message = text_of(error.get("message")) if type(error) is dict else text_of(error)
    return f"\nError: {message or encode_text(error)}"


def _server(item: JSONObject) -> str:
    return f"the MCP server {text_of(item.get('server_label')) or ''}".rstrip()


def _mcp_tools(item: JSONObject) -> str:
    names = [text_of(tool.get("name")) or "" for tool in objects_of(item.get("tools"))]
    return f"The tools of {_server(item)}: {', '.join(names)}{_error(item)}"


def _mcp_call(item: JSONObject) -> str:
    words = f"Called {text_of(item.get('name')) or 'a tool'} of {_server(item)} with {_arguments(item)}"
    output = text_of(item.get("output"))
    return words + _error(item) + ("" if output is None else f"\nOutput:\n{output}")


def _arguments(item: JSONObject) -> str:
    value = item.get("arguments")
    return value if type(value) is str else encode_text(value)


def _asked(item: JSONObject) -> str:
    name = text_of(item.get("name")) or "a tool"
    return f"Asked whether {name} of {_server(item)} may be called with {_arguments(item)}"


def _answered(item: JSONObject) -> str:
    reason = text_of(item.get("reason"))
    words = "The call is approved" if item.get("approve") is True else "The call is not approved"
    return words if reason is None else f"{words}: {reason}"


def _program(item: JSONObject) -> str:
    return f"Ran this program:\n{text_of(item.get('code')) or ''}"


def _program_output(item: JSONObject) -> str:
    return f"The program gave:\n{text_of(item.get('result')) or ''}"


def _tool_search(item: JSONObject) -> str:
    return f"Searched for tools: {_arguments(item)}"


def found_tools(item: JSONObject) -> str:
    """The tools that a search found, by their names. What they are is told where tools are told."""
    names = tool_names(item.get("tools"))
    return f"Found the tools: {', '.join(names)}" if names else "Found no tools"


def tool_names(tools: JSON) -> list[str]:
    """The names of tools, those in namespaces with theirs before them, as models are told them."""
    names: list[str] = []
    for tool in objects_of(tools):
        name = text_of(tool.get("name")) or text_of(tool.get("type")) or ""
        inner = tool_names(tool.get("tools"))
        names += [f"{name}__{each}" for each in inner] if inner else [name]
    return names


def _output(item: JSONObject) -> str:
    """A result that names no call."""
    output = item.get("output")
    text = output if type(output) is str else encode_text(output)
    return f"Output of {text_of(item.get('name')) or 'a tool'}:\n{text}"


_WORDS: dict[str, Callable[[JSONObject], str]] = {
    "code_interpreter_call": _code,
    "custom_tool_call_output": _output,
    "file_search_call": _file_search,
    "function_call_output": _output,
    "image_generation_call": _image,
    "mcp_approval_request": _asked,
    "mcp_approval_response": _answered,
    "mcp_call": _mcp_call,
    "mcp_list_tools": _mcp_tools,
    "program": _program,
    "program_output": _program_output,
    "tool_search_call": _tool_search,
    "tool_search_output": found_tools,
    "web_search_call": _web_search,
}
