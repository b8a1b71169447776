"""The page of the matrix, made from the results of the probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fidelity import chat, chat_stream, messages, messages_stream, responses, responses_stream
from fidelity.judge import Cell, Fate, Note, cell_of_answer, cell_of_request
from fidelity.probe import Probe
from fidelity.run import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES, TARGETS, VENDORS

TITLES = {CHAT: "Chat Completions", MESSAGES: "Messages", RESPONSES: "Responses"}
VENDOR_NAMES = {"openai": "OpenAI", "anthropic": "Anthropic"}
REQUESTS = {CHAT: chat.REQUESTS, MESSAGES: messages.REQUESTS, RESPONSES: responses.REQUESTS}
ANSWERS = {CHAT: chat_stream.ANSWERS, MESSAGES: messages_stream.ANSWERS, RESPONSES: responses_stream.ANSWERS}

_HEAD = """\
# What becomes of every field

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
| left out | the other side has no place for it |
| refused | the request gets an error, because it makes no sense without it; the words are those of the error |
| an error | the response ends with an error in the client's form |
| nothing to carry | the other side does or says the same without it |

In a place, the brackets behind an array have the type or role of the element: `messages[tool].content` is the content
of a message of the role `tool`. In streams the type of the event comes first: `content_block_delta: delta.text`.

What is altered, left out or wrapped as a whole block has an entry in the ledger: the words are those of the entry,
followed by its code in brackets. [translation.md](translation.md) explains the codes.

Some upstreams accept more than others. If a cell has two lines, the first is for a server of which nothing is known,
the second for the vendor's own host and a current model. [configuration.md](configuration.md) has the settings.
"""


def page() -> str:
    return "\n".join([_HEAD, *_requests(), *_answers()])


def request_cells(client: str, upstream: str, probe: Probe) -> list[Cell]:
    """Return a cell for each kind of upstream."""
    return [cell_of_request(client, upstream, target(upstream), probe) for target in TARGETS]


def others(protocol: str) -> list[str]:
    return [each for each in PROTOCOL_NAMES if each != protocol]


def _requests() -> Iterator[str]:
    for client, probes in REQUESTS.items():
        yield f"## Requests of {TITLES[client]} clients\n"

        def cell(upstream: str, probe: Probe, client: str = client) -> str:
            texts = list(dict.fromkeys(_text(each) for each in request_cells(client, upstream, probe)))
            if len(texts) == 1:
                return texts[0]
            return f"{texts[0]}<br>{VENDOR_NAMES[VENDORS[upstream]]}: {texts[1]}"

        yield from _tables(client, probes, cell)


def _answers() -> Iterator[str]:
    for upstream, probes in ANSWERS.items():
        yield f"## Streams of {TITLES[upstream]} servers\n"

        def cell(client: str, probe: Probe, upstream: str = upstream) -> str:
            return _text(cell_of_answer(upstream, client, probe), streams=True)

        yield from _tables(upstream, probes, cell)


def _tables(origin: str, probes: list[Probe], cell: Callable[[str, Probe], str]) -> Iterator[str]:
    sections: dict[str, list[Probe]] = {}
    for probe in probes:
        sections.setdefault(probe.section, []).append(probe)
    for section, rows in sections.items():
        yield f"### {section}\n"
        yield f"| {TITLES[origin]} | {' | '.join(f'to {TITLES[other]}' for other in others(origin))} |"
        yield "|---|---|---|"
        for probe in rows:
            yield f"| {probe.name} | {' | '.join(cell(other, probe) for other in others(origin))} |"
        yield ""


def _text(cell: Cell, *, streams: bool = False) -> str:
    places = ", ".join(f"`{place}`" if place != "..." else place for place in cell.places)
    notes = "; ".join(map(_note, cell.notes))
    match cell.fate:
        case Fate.CARRIED:
            text = f"{places}; {cell.words}" if cell.words else places
        case Fate.ALTERED:
            text = f"altered, {places}: {notes}"
        case Fate.WRAPPED:
            text = f"wrapped: {notes}" if notes else "wrapped"
        case Fate.BY_US:
            text = "done by the gateway"
        case Fate.LEFT_OUT:
            text = f"left out: {notes}"
        case Fate.REFUSED:
            text = f"{'an error' if streams else 'refused'}: {cell.words}"
        case Fate.NOTHING:
            text = f"nothing to carry: {cell.words}"
        case Fate.LOST:
            text = f"**lost without a word**: {cell.words}"
    return text.replace("|", "\\|")


def _note(note: Note) -> str:
    members = f"{', '.join(f'`{member}`' for member in note.members)}: " if note.members else ""
    return f"{members}{note.detail} (`{note.code}`)"
