"""What real providers answered. The recordings are no part of the repository, so `make test` never comes here.

A run ends with figures per pair of upstream and client: how many recordings reached the client as what they are, how
many as the error that they are or have to become, and how many did neither.
"""

import re
from collections import Counter, defaultdict
from functools import cache

import corpus
import pytest
from oracle import Stop, meaning_of_stream

# Whether the recording of a name has kept all rules so far, by client and name.
KEPT: dict[str, dict[str, bool]] = defaultdict(dict)


@cache
def _recorded() -> dict[str, tuple[str, bool]]:
    """Return upstream, and whether the client has to get an error, by the name of the recording."""
    found = {}
    for stream in corpus.recordings():
        stop = meaning_of_stream(stream.protocol, stream.read()).stop
        found[stream.name] = (stream.protocol, stop in (Stop.CUT, Stop.ERROR))
    for whole in (*corpus.equivalents(), *corpus.errors()):
        found[whole.name] = (whole.protocol, whole.status != 200 or whole.name in corpus.FAILURES)
    return found


def pytest_collection() -> None:
    if corpus.root() is None:
        place = corpus.PLACE / "streams"
        pytest.exit(f"there are no recordings in {place}, so nothing is tested against them", 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if isinstance(report, pytest.SubtestReport):
        name, client = (report.context.kwargs[key].strip("'\"") for key in ("source", "client"))
    elif report.when == "call" and (named := re.search(r"\[(.+)-to-(.+)\]$", report.nodeid)):
        name, client = named.groups()
    else:
        return
    KEPT[client][name] = KEPT[client].get(name, True) and report.passed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    for client, names in KEPT.items():
        for name, kept in names.items():
            upstream, fails = _recorded()[name]
            counts[upstream, client, "errors" if kept and fails else "passed" if kept else "wrong"] += 1
    terminalreporter.section("recordings by upstream and client: passed, errors as they should be, wrong")
    for upstream, client in sorted({pair[:2] for pair in counts}):
        figures = "".join(f"{counts[upstream, client, each]:6}" for each in ("passed", "errors", "wrong"))
        terminalreporter.write_line(f"{upstream:20}{client:26}{figures}")
