"""Requests that people wrote by hand for several protocols, translated into each other: every difference is explained.

The explanations are the rows of docs/equivalents.md. No difference is without one, and none is without a difference.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import corpus
from equiv import Difference, EquivalentRequests, differences
from oracle import CHAT, GEMINI, MESSAGES, PROTOCOL_NAMES, RESPONSES

PAGE = Path(__file__).parents[2] / "docs" / "equivalents.md"
NAMES = {"Chat": CHAT, "Messages": MESSAGES, "Responses": RESPONSES, "Gemini": GEMINI}
ANY = "any"


@dataclass(frozen=True, slots=True)
class Row:
    """One explanation. cases: none of them means all."""

    source: str
    target: str
    place: str
    side: str
    cases: tuple[str, ...]

    def explains(self, found: Difference) -> bool:
        return (
            self.source in (ANY, found.source)
            and self.target in (ANY, found.target)
            and self.side == found.side
            and _fits(self.place, found.place)
            and (not self.cases or any(_fits(case, found.case) for case in self.cases))
        )


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def table() -> list[Row]:
    rows = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[2].startswith("`"):
            source, target, place, side, cases, why = cells
            assert why.endswith("."), f"no explanation: {line}"
            named = tuple(re.findall(r"`([^`]+)`", cases))
            rows.append(Row(NAMES.get(source, ANY), NAMES.get(target, ANY), place.strip("`"), side, named))
    return rows


def equivalent_requests() -> Iterator[EquivalentRequests]:
    """Those that were written for more than one protocol."""
    for folder in corpus.files("equiv/*/"):
        for stage in ("request", "followup-request"):
            files = {protocol: folder / f"{short}.{stage}.json" for short, protocol in corpus.FOLDERS.items()}
            files[GEMINI] = corpus.PLACE / "streams/gemini/equiv" / folder.name / f"google.{stage}.json"
            bodies = {
                name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.is_file()
            }
            if len(bodies) > 1:
                yield EquivalentRequests(folder.name, stage, bodies)


@cache
def all_differences() -> tuple[Difference, ...]:
    return tuple(each for equivalents in equivalent_requests() for each in differences(equivalents))


def test_every_difference_is_explained() -> None:
    rows = table()
    found = {each for each in all_differences() if not any(row.explains(each) for row in rows)}
    assert sorted(found) == []


def test_every_explanation_is_of_a_difference() -> None:
    idle = [row for row in table() if not any(row.explains(each) for each in all_differences())]
    assert idle == []


def test_every_case_of_an_explanation_has_the_difference() -> None:
    idle = [
        (row.place, case)
        for row in table()
        for case in row.cases
        if not any(row.explains(each) and _fits(case, each.case) for each in all_differences())
    ]
    assert idle == []


def test_all_pairs_are_compared() -> None:
    pairs = {(each.source, each.target) for each in all_differences()}
    assert pairs == {
        (source, target) for source in PROTOCOL_NAMES for target in PROTOCOL_NAMES if source != target
    }
