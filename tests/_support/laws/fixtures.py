"""The requests and whole responses of the golden fixtures that are marked for the laws, by protocol and name.

Between them they hold every field, part, item and tool of the protocols. "full" has everything that every other
protocol translates or drops; the others are small and have all that some upstream refuses (a refusal is not silent).
Numbers differ from their defaults, so that a lost one is found.
"""

from typing import Any

import golden

Bodies = dict[str, dict[str, dict[str, Any]]]


def _marked(kind: str) -> Bodies:
    found: Bodies = {}
    for fixture in golden.fixtures()[kind]:
        if fixture.get("laws"):
            found.setdefault(fixture["protocol"].partition("/")[0], {})[fixture["name"]] = fixture["body"]
    return found


REQUESTS = _marked("request")
WHOLE_RESPONSES = _marked("whole")
