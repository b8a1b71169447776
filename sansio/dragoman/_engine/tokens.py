"""An estimate of a request's tokens: for figures that are needed before, or without, an upstream's own count.

There is no tokenizer, because each family of models has one and all of them are large. Text is counted by characters,
with a rate for each class of script; everything without text costs a constant. Everything that the model gets counts,
not only the messages: instructions, tools with their schemas, images, documents, and the frame that a chat template
puts around each of them. The same request always gives the same figure.

The figure is for budgets and for deciding when a conversation has to be compacted. It is no basis for a bill.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.request import (
    Media,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CustomTool, FunctionTool, HostedTool, Tool
from dragoman._wire.json import JSON, encode

# Text is summed up in hundredths of a token, so that short pieces are not rounded one by one. Scripts that take
# more bytes in UTF-8 are rarer in what tokenizers were made from, and so have fewer characters a token:
#   1 byte   ASCII                                       25   four characters a token: prose 4.5, code and JSON 3 to 3.5
#   2 bytes  Latin with accents, Greek, Cyrillic, Arabic 56   1.8
#   3 bytes  Chinese, Japanese, Korean, Thai, Indic      87   1.1
#   4 bytes  emoji                                      118   one or two tokens each
_CHARACTER = 25
_MORE_BYTE = 31  # each byte after the first

# JSON Schema repeats its keywords, and vendors print it in shorter forms: it is cheaper than prose.
_SCHEMA = 22

# Tokens around each part.
_REQUEST = 4  # the start of the conversation and of the response
_MESSAGE = 4  # role and separators
_CALL = 12  # a call's or a result's id, name and frame
_TOOL = 10  # one tool's frame
# Instructions on how to call tools, once there are any. Servers differ most in this: GPT models add 20 tokens,
# open models 100 to 150, Claude models 300 to 350, Grok models 250. The middle is off by the same factor both ways.
_TOOLS = 100
# The instruction to respond in JSON: none in GPT models, 130 tokens in Claude models.
_FORMAT = 30
# A tool that the provider runs has its own instructions: 400 to 2000 tokens were observed, most for searching and
# for running code.
_HOSTED_TOOL = 400
_HOSTED_USE = 800

# Images. Vendors count tiles or pixels (85 for `detail: low`, else 250 to 1600), and the pixels are not known
# without decoding: the length of the file selects the class.
_IMAGE_LOW = 85
_IMAGE_CLASSES = (  # at most so many characters of base64, tokens
    (16_000, 250),
    (130_000, 800),
    (1_300_000, 1_300),
)
_IMAGE_LARGEST = 1_600
_REFERENCED_IMAGE = 1_000  # a URL or a file id

# A page of a PDF is 1500 to 3000 tokens in some 50 kB, base64 adds a third. The limit is what models have.
_FILE_BASE64_PER_TOKEN = 25
_MIN_FILE = 500
_MAX_FILE = 200_000
_REFERENCED_FILE = 4_000  # a URL or a file id: two pages
# Ten tokens a second; a second is 16 kB of MP3 or 48 kB of WAV, base64 adds a third.
_AUDIO_BASE64_PER_TOKEN = 3_000
_MIN_AUDIO = 50

# Ciphertext instead of reasoning: its base64 has 6 characters a token or more. Some vendors leave out the
# reasoning of turns that are over.
_CIPHERTEXT_PER_TOKEN = 12


def estimate_tokens(request: Request) -> int:
    """Return about how many input tokens `request` has. Never 0.

    It is within a factor of 3 of what providers count for requests of more than a hundred tokens, within 1.6 for half
    of them and within 1.3 for large ones. Tokens that a provider adds by itself are not counted: a system prompt of
    its own, and the results of the tools that it runs.
    """
    total = _REQUEST
    hundredths = 0
    for message in request.messages:
        total += _MESSAGE
        if message.plain_text:
            hundredths += _text(message.plain_text)
            continue
        for part in message.content:
            if type(part) is Text:  # as nearly all are
                hundredths += _text(part.text)
            else:
                hundredths += _PARTS[type(part)](part)
    if request.tools:
        total += _TOOLS
        for tool in request.tools:
            hundredths += _tool(tool)
        for namespace in request.namespaces:
            hundredths += _text(namespace.description or "")
    if request.response_format is not None:
        total += _FORMAT
        hundredths += _json(request.response_format.schema) + _text(request.response_format.description or "")
    return total + (hundredths + 99) // 100


def _text(text: str) -> int:
    """Hundredths of a token."""
    count = len(text)
    if text.isascii():
        return count * _CHARACTER
    return count * _CHARACTER + (len(text.encode("utf-8", "surrogatepass")) - count) * _MORE_BYTE


def _json(value: JSON) -> int:
    """Hundredths of a token of JSON that describes something."""
    return 0 if value is None else len(encode(value)) * _SCHEMA


def _tool(tool: Tool) -> int:
    if type(tool) is FunctionTool:
        if tool.deferred:  # the model gets only its name
            return _text(tool.name)
        schema = _json(tool.parameters) + _json(tool.examples)
        return _TOOL * 100 + _text(tool.name) + _text(tool.description or "") + schema
    if type(tool) is CustomTool:
        grammar = "" if tool.grammar is None else tool.grammar.definition
        return _TOOL * 100 + _text(tool.name) + _text(tool.description or "") + _text(grammar)
    assert type(tool) is HostedTool
    return (_HOSTED_TOOL if tool.use is None else _HOSTED_USE) * 100 + _json(tool.native)


def _text_part(part: Refusal) -> int:
    return _text(part.text)


def _reasoning(part: Reasoning) -> int:
    if part.text or part.signature is None:
        return _text(part.text)
    return len(encode(part.signature.native)) * 100 // _CIPHERTEXT_PER_TOKEN


def _call(part: ToolCall) -> int:
    return _CALL * 100 + _text(part.name) + _text(part.input)


def _result(part: ToolResult) -> int:
    text = _text(part.plain_text) or sum([_PARTS[type(each)](each) for each in part.content])
    return _CALL * 100 + text


def _opaque(part: OpaquePart) -> int:
    return _json(part.native) if part.text is None else _text(part.text)


def _media(part: Media) -> int:
    referenced = part.source in ("url", "file_id")
    if part.source == "text":
        return _text(part.data)
    if part.kind == "image":
        return 100 * _image(part, referenced)
    if part.kind == "audio":
        return 100 * max(_MIN_AUDIO, len(part.data) // _AUDIO_BASE64_PER_TOKEN)
    if referenced:
        return 100 * _REFERENCED_FILE
    if (part.media_type or "").startswith("text/"):
        return len(part.data) * 3 // 4 * _CHARACTER
    return 100 * min(_MAX_FILE, max(_MIN_FILE, len(part.data) // _FILE_BASE64_PER_TOKEN))


def _image(part: Media, referenced: bool) -> int:
    if part.detail == "low":
        return _IMAGE_LOW
    if referenced:
        return _REFERENCED_IMAGE
    size = len(part.data)
    return next((tokens for limit, tokens in _IMAGE_CLASSES if size <= limit), _IMAGE_LARGEST)


# What a part of each kind costs, in hundredths of a token.
_PARTS: dict[type, Callable[[Part], int]] = {
    Text: _text_part,  # type: ignore[dict-item]
    Refusal: _text_part,  # type: ignore[dict-item]
    Reasoning: _reasoning,  # type: ignore[dict-item]
    ToolCall: _call,  # type: ignore[dict-item]
    ToolResult: _result,  # type: ignore[dict-item]
    OpaquePart: _opaque,  # type: ignore[dict-item]
    Media: _media,  # type: ignore[dict-item]
}
