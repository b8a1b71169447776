"""The page of the matrix, made from the results of the probes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

from dragoman_server.capabilities.provider import CHAT, GEMINI, MESSAGES, RESPONSES
from fidelity.judge import Cell, Fate, Note, cells_of
from fidelity.probe import Probe
from fidelity.rows import read
from fidelity.run import PROTOCOL_NAMES, VENDORS

TITLES = {CHAT: "Chat Completions", MESSAGES: "Messages", RESPONSES: "Responses", GEMINI: "Gemini"}
VENDOR_NAMES = {"openai": "OpenAI", "anthropic": "Anthropic", "gemini": "Google"}
_ROWS = {protocol: read(protocol) for protocol in PROTOCOL_NAMES}
REQUESTS = {protocol: requests for protocol, (requests, _) in _ROWS.items()}
ANSWERS = {protocol: streams for protocol, (_, streams) in _ROWS.items()}

_HEAD = """\
# What happens to every field

`make docs` makes this page: for each row the translators run on a small document with and without what the row is
about, and the cell has the result. [What you lose](what-you-lose.md) sums it up, and [translation.md](translation.md)
explains how and why.

Each table has the protocol that something comes in, and a column for each protocol that it can go to. Pairs of equal
protocols are not here, because their bytes pass unchanged.

| a cell has | meaning |
|---|---|
| a place | carried: it is there on the other side |
| altered | carried in a form that says less or says it differently |
| wrapped | it is sent in the opaque field of the client's protocol, and comes back to its vendor unchanged |
| done by the gateway | the upstream does not get it, because the gateway does it |
| left out | the other side has no field for it |
| refused | the request gets an error, because it makes no sense without it; the words come from the error |
| an error | the response ends with an error in the client's form |
| nothing to carry | the other side does the same without it |

In a place, the brackets behind an array have the type or role of the element: `messages[tool].content` is the content
of a message of the role `tool`. `path` is the path of the request. In streams the type of the event comes first:
`content_block_delta: delta.text`.

What is altered, left out or wrapped as a whole block has an entry in the ledger: the words come from the entry,
followed by its code in brackets. [translation.md](translation.md) explains the codes.

Some upstreams accept more than others. If a cell has two lines, the first is for an unknown server,
the second for the vendor's own host and a current model. [configuration.md](configuration.md) has the settings.
"""


def page() -> str:
    """Return the text of fidelity.md."""
    lines = [_HEAD]
    for client, probes in REQUESTS.items():
        lines += [f"## Requests of {TITLES[client]} clients", "", *_tables(client, probes)]
    for upstream, probes in ANSWERS.items():
        lines += [f"## Streams of {TITLES[upstream]} servers", "", *_tables(upstream, probes)]
    return "\n".join(lines)


def others(protocol: str) -> list[str]:
    return [each for each in PROTOCOL_NAMES if each != protocol]


def _tables(origin: str, probes: list[Probe]) -> Iterator[str]:
    columns = others(origin)
    for section, rows in groupby(probes, attrgetter("section")):
        yield from (f"### {section}", "")
        yield f"| {TITLES[origin]} | {' | '.join(f'to {TITLES[other]}' for other in columns)} |"
        yield f"|{'---|' * (1 + len(columns))}"
        for probe in rows:
            yield f"| {probe.name} | {' | '.join(_cell(origin, other, probe) for other in columns)} |"
        yield ""


def _cell(origin: str, other: str, probe: Probe) -> str:
    refused = "an error" if isinstance(probe.body, list) else "refused"
    plain, *vendor = dict.fromkeys(_text(cell, refused) for cell in cells_of(origin, other, probe))
    return "<br>".join([plain, *(f"{VENDOR_NAMES[VENDORS[other]]}: {text}" for text in vendor)])


def _text(cell: Cell, refused: str) -> str:
    places = ", ".join(f"`{place}`" if place != "..." else place for place in cell.places)
    if cell.fate is Fate.CARRIED:
        text = "; ".join(filter(None, (places, cell.words)))
    else:
        label = {Fate.ALTERED: f"altered, {places}", Fate.REFUSED: refused}.get(cell.fate, cell.fate.value)
        text = ": ".join(filter(None, (label, "; ".join(map(_note, cell.notes)), cell.words)))
    return text.replace("|", "\\|")


def _note(note: Note) -> str:
    members = f"{', '.join(f'`{member}`' for member in note.members)}: " if note.members else ""
    return f"{members}{note.detail} (`{note.code}`)"
