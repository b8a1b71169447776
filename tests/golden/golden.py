"""Every fixture, translated over every pair of protocols, with the exact bytes and every entry of the ledger.

    make golden                                 write golden.txt again, and print case by case what changed
    python tests/golden/golden.py               the same
    pytest tests/sansio/test_golden.py          fail when anything differs

`fixtures.jsonl` has the inputs as data, one a line: requests of each client protocol ("request"), streams, whole
responses and HTTP errors of each upstream protocol ("stream", "whole", "error"), and the requests for which responses
are translated ("ask"). They were taken from the tests, but nothing here imports the tests, because inputs that change
with the code cannot check it. To add a fixture, append a line and run the command. Those with "laws" are the samples
of the laws of conservation, too (`tests/_support/laws/fixtures.py`): every field of a protocol belongs in one of them.
Those with "client" are requests of real clients (`tests/_support/agents/requests.py`).

`golden.txt` has what becomes of them. It is one text file and not a list of digests because a reviewer must see what
changed, and it is abridged because a stream of a few words has kilobytes of frames:

- A document is broken into lines at its outer members, a stream into its frames, one a line. "⏎" is a newline;
  `name: {"type":~` is an event line with this name and data that begin with a type of the same name.
- «n» stands for n characters that an earlier frame has as well, be it one of the first fixture's of this pair, «n lines
  as in ...» for lines of that fixture, «n as sent» for n bytes of the input that were passed on.
- A string of more than 80 characters shows its ends, its length and a digest.
- A line with "!" is an entry of the ledger: code, place, detail.
- "= ..." says that the case is the same as another one of this fixture.
- A case with "+ name" has other capabilities of the upstream, or another request. It shows how it differs from the case
  without: "-" and the begin of a line that is not there, "+" and a line that is.

No change is hidden: what is not printed is printed elsewhere or in the input, and responses have a digest of all bytes.
Ids and times are arguments. All that this file uses of the product is in the part "the product", to be kept working
when names change.
"""

import difflib
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from dragoman import (
    PROTOCOLS,
    UPSTREAMS,
    FanOut,
    Relay,
    RemoteProtocolError,
    RequestRefused,
    RequestTranslator,
    ResponseTranslator,
    Signer,
    translate_error,
)

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures.jsonl"
GOLDEN = HERE / "golden.txt"
COMMAND = "make golden"

Json = Any
Lines = list[str]

# --- the product ----------------------------------------------------------------------------------------------

NAMES = ("openai_chat", "anthropic_messages", "openai_responses", "gemini")
# A client by its protocol, and the path of its endpoint where a protocol has several.
CLIENTS = (*NAMES, "simple_chat/chat/json", "simple_chat/chat/stream", "simple_chat/chat/sse")
SIGNER = Signer(b"a secret of the gateway")

EFFORTS = ("none", "low", "medium", "high", "xhigh", "max")
# Upstreams that take more, or less, than an unknown one. Those of other protocols than the upstream's are left out.
CAPABILITIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "rewrite": {"relay": "rewrite"},
    "wide": {
        "max_tokens": 555,
        "custom_tools": True,
        "developer_role": True,
        "text_content": "parts",
        "mid_system": True,
        "max_tokens_field": "max_tokens",
        "reasoning_field": "reasoning",
        "reasoning_setting": "reasoning",
        "reasoning_back": "always",
        "thinking": "budget",
        "cache_marks": "cache_control",
        "cache_keys": True,
        "tool_images": True,
        "hosted_tools": frozenset(("web_search", "code_execution", "mcp")),
        "enforces": frozenset(("schema", "tool_choice")),
        "summaries": "auto",
        "relay": "rewrite",
    },
    "narrow": {
        "custom_tools": False,
        "turn_order": "alternate",
        "reasoning_field": None,
        "reasoning_setting": None,
        "thinking": "none",
        "sampling": False,
        "cache_marks": "none",
        "efforts": ("low", "high"),
        "structured_output": "none",
        "call_ids": "alnum9",
        "forced_tools": "no",
        "sampling_pair": False,
        "tools_with_effort": False,
        "prefill": False,
        "refuses": frozenset(
            ("seed", "stop", "user", "image", "file", "tool_strict", "message_name", "parallel_tool_calls")
        ),
        "summaries": "never",
        "relay": "rewrite",
    },
    "object": {
        "structured_output": "object",
        "turn_order": "no_user_after_tool",
        "reasoning_setting": "thinking",
        "reasoning_back": "tool_loop",
        "forced_tools": "not_thinking",
        "thought_signatures": True,
        "cache_marks": "breakpoint",
        "relay": "rewrite",
    },
    # Of the vendors' own hosts with current models; only for requests of real clients, and without relays.
    "anthropic": {
        "mid_system": True,
        "sampling": False,
        "efforts": EFFORTS,
        "hosted_tools": frozenset(("mcp", "code_execution", "web_search")),
        "forced_tools": "not_thinking",
        "enforces": frozenset(("schema", "tool_choice")),
        "prefill": False,
        "encrypted_reasoning": True,
    },
    "openai": {
        "max_output_tokens": 128_000,
        "custom_tools": True,
        "encrypted_reasoning": True,
        "developer_role": True,
        "mid_system": True,
        "reasoning_field": None,
        "cache_marks": "breakpoint",
        "cache_keys": True,
        "efforts": EFFORTS,
        "hosted_tools": frozenset(("mcp", "code_execution", "web_search")),
        "tools_with_effort": False,
        "enforces": frozenset(("schema", "tool_choice")),
        "refuses": frozenset(
            (
                "logit_bias",
                "presence_penalty",
                "frequency_penalty",
                "top_p",
                "top_logprobs",
                "logprobs",
                "temperature",
                "stop",
            )
        ),
    },
}
VENDORS = {"anthropic": "anthropic_messages", "openai": "openai_responses"}


def spec_of(client: str) -> Any:
    return PROTOCOLS[client.partition("/")[0]]


def endpoint_of(client: str) -> Any:
    paths = {endpoint.path: endpoint for endpoint in spec_of(client).endpoints}
    return paths.get("/" + client.partition("/")[2])


def request(client: str, upstream: str, body: bytes, capabilities: str) -> Any:
    translator = RequestTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        capabilities=msgspec.convert(CAPABILITIES[capabilities], UPSTREAMS[upstream].capabilities),
        signer=SIGNER,
        max_fan_out=4,
        endpoint=endpoint_of(client),
    )
    return translator.translate(body, model="upstream-model")


def request_lines(client: str, upstream: str, body: bytes, capabilities: str) -> Lines:
    """The request for the upstream, or the error that the client gets instead."""
    try:
        done = request(client, upstream, body, capabilities)
    except (RemoteProtocolError, RequestRefused) as error:
        status, error_body = spec_of(client).write_error(error.as_wire_error(), "req_1")
        return [f"error {status} {error.path} {error.code}", *document(error_body)]
    head = f"{'relayed, ' if done.relayed else ''}about {done.prompt_tokens} tokens"
    head += f", {done.fan_out} answers" if done.fan_out != 1 else ""
    head += "".join(f", {name}: {value}" for name, value in done.headers)
    return [head, *(as_sent(done.body, body) if done.relayed else document(done.body)), *entries(done.losses)]


def response_lines(
    client: str, upstream: str, requested: Json, data: bytes, *, came: bool, client_streams: bool
) -> Lines:
    """A response for a client that sent `requested`. came: the upstream streamed it."""
    done = request(client, upstream, bytes_of(requested), requested.get("capabilities", "plain"))
    context = done.response_context(id="x7", now=1_790_000_000, model="alias", signer=SIGNER)
    if done.fan_out != 1:
        return fan_out_lines(
            client, upstream, context, done.fan_out, data, came=came, client_streams=client_streams
        )
    machine = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=context,
        upstream_streams=came,
        client_streams=client_streams,
    )
    return machine_lines(client, machine, data, client_streams)


def fan_out_lines(
    client: str, upstream: str, context: Any, count: int, data: bytes, *, came: bool, client_streams: bool
) -> Lines:
    """One response with `count` choices, each of which the upstream sent by itself."""
    machine = FanOut(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=context,
        count=count,
        client_streams=client_streams,
    )
    for number in range(count):
        part = machine.start(number, upstream_streams=came)
        part.receive_data(data)
        part.receive_eof()
        machine.merge()
    machine.receive_eof()
    return printed(client, machine, machine.data_to_send(), client_streams)


def relay_lines(client: str, requested: Json, data: bytes, *, streams: bool) -> Lines:
    done = request(client, client, bytes_of(requested), "plain")
    context = done.response_context(id="x7", now=1_790_000_000, model="alias", signer=SIGNER)
    machine = Relay(protocol=UPSTREAMS[client], context=context, streams=streams)
    return machine_lines(client, machine, data, streams, sent=data)


def machine_lines(client: str, machine: Any, data: bytes, streams: bool, sent: bytes | None = None) -> Lines:
    machine.receive_data(data)
    machine.receive_eof()
    return printed(client, machine, machine.data_to_send(), streams, sent)


def printed(client: str, machine: Any, out: bytes, streams: bool, sent: bytes | None = None) -> Lines:
    """How a response ended, its bytes and its ledger."""
    stop, error = machine.stop_reason, machine.error
    head = f"{machine.outcome.value} {stop.value if stop else '-'} {machine.upstream_model}"
    head += " usage " + " ".join("-" if value is None else str(value) for value in values_of(machine.usage))
    if error is not None:
        head += f" error {error.kind.value} {error.status} {error.type} {error.code} {error.param}: {error.message}"
    if sent is not None:
        body = as_sent(out, sent)
    else:
        body = frames(out) if streams else document(out)
        head += f" sha256 {hashlib.sha256(out).hexdigest()[:8]}"
    if error is not None and not out:  # then the client gets an HTTP error
        status, error_body = spec_of(client).write_error(error, "req_1")
        body = [f"  error {status}", *document(error_body)]
    return [visible(head), *body, *entries(machine.losses)]


def values_of(struct: Any) -> list[Any]:
    return [getattr(struct, name) for name in struct.__struct_fields__]


def error_lines(client: str, upstream: str, status: int, body: bytes) -> Lines:
    there, error_body, error = translate_error(
        status, body, upstream=UPSTREAMS[upstream], client=spec_of(client), request_id="req_1"
    )
    return [
        visible(f"{there} {error.kind.value} {error.type} {error.code} {error.param}"),
        *document(error_body),
    ]


def entries(losses: Iterable[Any]) -> Lines:
    return [visible(f"! {loss.code.value} {loss.path}: {loss.detail}") for loss in losses]


# --- printing ---------------------------------------------------------------------------------------------------

_LONG = re.compile(r"(?:[^\"\\\n]|\\.){81,}")
_BREAK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]')
_HIDDEN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ufeff\\ud800-\\udfff]")
_NAMED = re.compile(r'^event: (\S+)\ndata: \{"type":"\1"')
_LEAST = 10  # of characters that are worth folding
_LONG_FRAME = 400
_LONG_LINE = 150
_SHOWN = 50  # characters of a line that a variant replaces
_FRAMES = 12  # that are looked at for what a later one repeats


def line_of(text: str) -> str:
    """In one line, with long strings folded."""
    return _LONG.sub(_folded, visible(text))


def visible(text: str) -> str:
    """In one line."""
    text = text.replace("\r", "␍").replace("\n", "⏎")
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _folded(found: re.Match[str]) -> str:
    text = found[0]
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[:24]}«{len(text)}:{digest}»{text[-8:]}"


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def document(data: bytes) -> Lines:
    """JSON, a line for each of its outer members."""
    text, lines, depth, start = text_of(data), [], 0, 0
    for found in _BREAK.finditer(text):
        mark = found[0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        elif mark == "," and (depth == 1 or (depth == 2 and found.end() - start > 60)):
            lines.append(text[start : found.end()])
            start = found.end()
    return ["  " + line_of(line) for line in [*lines, text[start:]] if line]


def frames(data: bytes) -> Lines:
    """A stream, a line for each of its frames, without what a frame repeats of an earlier one."""
    lines, before, long = [], [""], ""
    end = "\n\n" if b"\n\n" in data else "\n"
    for frame in re.split(f"(?<={end})", text_of(data)):
        if frame:
            line = line_of(_NAMED.sub(r'\1: {"type":~', frame.removesuffix(end)))
            line += "" if frame.endswith(end) else " «not ended»"
            ways = [less(line, other) for other in (long, *before[-_FRAMES:])]
            if len(line) > _LONG_FRAME:
                ways.append(less_of_members(line, long))
                long = line
            lines.append("  " + min(ways, key=len))
            before.append(line)
    return lines


def less_of_members(line: str, before: str) -> str:
    """Without runs of members that an earlier long frame has, too."""
    old, new = before.split(","), line.split(",")
    shown = []
    for tag, _, _, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        text = ",".join(new[start:end])
        shown.append(f"«{len(text)}»" if tag == "equal" and len(text) >= _LEAST else text)
    return ",".join(text for text in shown if text)


def less(line: str, before: str) -> str:
    shared = min(len(line), len(before))
    begin = next((at for at in range(shared) if line[at] != before[at]), shared)
    begin = begin if begin >= _LEAST else 0
    shared -= begin
    end = next((at for at in range(shared) if line[-1 - at] != before[-1 - at]), shared)
    end = end if end >= _LEAST else 0
    return (f"«{begin}»" if begin else "") + line[begin : len(line) - end] + (f"«{end}»" if end else "")


def begin_of(line: str) -> str:
    return line if len(line) <= 2 * _SHOWN else f"{line[:_SHOWN]}… ({len(line)})"


def as_sent(out: bytes, sent: bytes) -> Lines:
    """What is passed on, without what is just as it came."""
    shared = min(len(out), len(sent))
    begin = next((at for at in range(shared) if out[at] != sent[at]), shared)
    shared -= begin
    end = next((at for at in range(shared) if out[-1 - at] != sent[-1 - at]), shared)
    parts = [f"«{begin} as sent»", line_of(text_of(out[begin : len(out) - end])), f"«{end} as sent»"]
    left_out = line_of(text_of(sent[begin : len(sent) - end]))
    note = f" instead of {begin_of(left_out)}" if left_out else ""
    return ["  " + " ".join(part for part in parts if part and part != "«0 as sent»") + note]


def changed(old: Lines, new: Lines) -> Lines:
    """The lines that only one of the two has."""
    found: Lines = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            found += [*(f"-{line}" for line in old[a:b]), *(f"+{line}" for line in new[c:d])]
    return found


def variant(plain: Lines, other: Lines) -> Lines:
    """How it differs from the plain case, whose lines are there to read: only the begin of those that are replaced."""
    found: Lines = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, plain, other, autojunk=False).get_opcodes():
        if tag != "equal":
            found += [f"-{line if len(line) <= _SHOWN else line[:_SHOWN] + '…'}" for line in plain[a:b]]
            replaced = [*plain[a:b], *[""] * (d - c)]
            found += ["+" + less(line, old) for line, old in zip(other[c:d], replaced, strict=False)]
    return found


def unlike(lines: Lines, other: Lines, title: str) -> Lines:
    """The lines without long runs that the case of this title has, too."""
    found: Lines = []
    for tag, _, _, start, end in difflib.SequenceMatcher(None, other, lines, autojunk=False).get_opcodes():
        if tag == "equal" and sum(map(len, lines[start:end])) > 60:
            found.append(f"  «{end - start} lines as in {title}»")
        else:
            found += [min((line, *_less_of(line, other)), key=len) for line in lines[start:end]]
    return found


def _less_of(line: str, other: Lines) -> Iterator[str]:
    for each in other if len(line) > _LONG_LINE else ():
        if each[:_LEAST] == line[:_LEAST] and len(each) > _LONG_LINE:
            yield less_of_members(line, each)


# --- the cases --------------------------------------------------------------------------------------------------

Cases = dict[str, Lines]


def fixtures() -> dict[str, list[Json]]:
    """By kind: request, stream, whole, error, ask."""
    found: dict[str, list[Json]] = {}
    for line in FIXTURES.read_text("utf-8").splitlines():
        fixture = json.loads(line)
        found.setdefault(fixture["kind"], []).append(fixture)
    return found


def bytes_of(fixture: Json) -> bytes:
    if "text" in fixture:
        return str(fixture["text"]).encode("utf-8", "surrogateescape")
    return json.dumps(fixture["body"]).encode()


def cases() -> Cases:
    """The lines of each case, by its title."""
    fixtures_by_kind = fixtures()
    found: Cases = {}
    for fixture in fixtures_by_kind["request"]:
        found.update(once(_requests(fixture)))
    for kind in ("stream", "whole"):
        patterns: dict[str, tuple[str, Lines]] = {}  # of each pair, the first fixture's cases
        for fixture in fixtures_by_kind[kind]:
            found.update(once(_responses(fixture, fixtures_by_kind["ask"], patterns)))
    for fixture in fixtures_by_kind["error"]:
        found.update(once(_errors(fixture)))
    return found


def short(protocol: str) -> str:
    return re.sub("^(openai|anthropic)_|^simple_chat/", "", protocol)


def once(found: Iterable[tuple[str, Lines]]) -> Iterator[tuple[str, Lines]]:
    """The cases of one fixture; of those that are the same the later ones name the first."""
    seen: dict[tuple[str, ...], str] = {}
    for title, lines in found:
        pair = title.partition(", ")[2]
        first = seen.setdefault(tuple(lines), pair)
        yield title, lines if first == pair or len(lines) == 1 else [f"= {first}"]


def _requests(fixture: Json) -> Iterator[tuple[str, Lines]]:
    client, body = fixture["protocol"], bytes_of(fixture)
    for upstream in NAMES:
        title = f"request {fixture['name']}, {short(client)} -> {short(upstream)}"
        plain = request_lines(client, upstream, body, "plain")
        yield title, plain
        for name in CAPABILITIES:
            if name == "plain" or (name == "rewrite" and client != upstream):
                continue
            if name in VENDORS and (
                "client" not in fixture or VENDORS[name] != upstream or client == upstream
            ):
                continue
            other = request_lines(client, upstream, body, name)
            if name == "rewrite":
                plain = other
                yield f"{title} + {name}", other
            elif other != plain:
                yield f"{title} + {name}", variant(plain, other)


def _errors(fixture: Json) -> Iterator[tuple[str, Lines]]:
    protocol, status = fixture["protocol"], fixture["status"]
    for client in (*NAMES, "simple_chat"):
        lines = error_lines(client, protocol, status, bytes_of(fixture))
        yield f"error {fixture['name']}, {short(protocol)} -> {short(client)}", lines


def _responses(
    fixture: Json, requests: list[Json], patterns: dict[str, tuple[str, Lines]]
) -> Iterator[tuple[str, Lines]]:
    upstream, data, came = fixture["protocol"], bytes_of(fixture), fixture["kind"] == "stream"
    plain: dict[bool, Lines] = {}
    for requested in requests:
        client, name = requested["protocol"], requested["name"]
        if name not in fixture.get("asks", ("plain",)):
            continue
        if upstream == client and name == "plain":
            pair = f"{short(upstream)} -> {short(client)}, relayed"
            yield (
                f"{fixture['kind']} {fixture['name']}, {pair}",
                relay_lines(client, requested, data, streams=came),
            )
        for client_streams in (True, False):
            if client.startswith("simple_chat/") and client_streams is client.endswith("/json"):
                continue
            lines = response_lines(
                client, upstream, requested, data, came=came, client_streams=client_streams
            )
            pair = f"{short(upstream)} -> {short(client)}{'' if name == 'plain' else f' + {name}'}"
            pair += ", streamed" if client_streams else ", whole"
            pattern, other = patterns.setdefault(pair, (fixture["name"], lines))
            if name != "plain":
                shown = variant(plain[client_streams], lines) or [f"= {pair.replace(f' + {name}', '')}"]
            else:
                plain[client_streams] = lines
                shown = lines if other is lines else unlike(lines, other, pattern)
            yield f"{fixture['kind']} {fixture['name']}, {pair}", shown


def render(found: Cases) -> str:
    return "".join("\n".join([f"# {title}", *lines, ""]) for title, lines in found.items())


def parse(text: str) -> Cases:
    found: Cases = {}
    for case in text.removeprefix("# ").split("\n# "):
        title, *lines = case.rstrip("\n").split("\n")
        found[title] = lines
    return found


def differences(old: Cases, new: Cases) -> Lines:
    """Each case that is not the same, with its lines that are not the same."""
    shown: Lines = []
    for title in [*old, *(title for title in new if title not in old)]:
        if title not in new:
            shown.append(f"# {title}: is gone")
        elif title not in old:
            shown += [f"# {title}: is new", *(f"+{line}" for line in new[title])]
        elif old[title] != new[title]:
            shown += [f"# {title}", *changed(old[title], new[title])]
    return shown


def main(show: Callable[[str], None] = print) -> None:
    old = parse(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}
    new = cases()
    GOLDEN.write_text(render(new), "utf-8")
    for line in differences(old, new):
        show(line)
    count = sum(old.get(title) != new.get(title) for title in {**old, **new})
    show(f"{GOLDEN.name}: {len(new)} cases, {count} changed")


if __name__ == "__main__":
    sys.exit(main())
