"""The pages on `dragoman init` and `dragoman doctor` have what the code has."""

import re
from pathlib import Path

from dragoman_server.capabilities.local_servers import LOCAL_SERVERS
from dragoman_server.capabilities.providers import address_of

ROOT = Path(__file__).parents[3]
DOCTOR = (ROOT / "docs" / "doctor.md").read_text("utf-8")
FIRST = (ROOT / "docs" / "first-configuration.md").read_text("utf-8")
CODE = ROOT / "server" / "dragoman_server"


def test_every_check_is_documented() -> None:
    made = re.compile(r'(?:CheckFinding(?:\.[a-z]+\(|\(severity,)|Cause\(|_unreachable\()\s*"([a-z_]+)"')
    code = [
        *(CODE / "cli" / "doctor").glob("*.py"),
        CODE / "config" / "loader.py",
        CODE / "accounts" / "key_findings.py",
    ]
    checks = {check for file in code for check in made.findall(file.read_text("utf-8"))}
    table = DOCTOR.partition("## What is checked")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {check for cell in cells for check in re.findall(r"`([a-z_]+)`", cell)} == checks


def test_every_local_server_is_documented() -> None:
    rows = re.findall(r"^\| (.+) \| (\d+) \| `(\w+)` \|$", FIRST, re.MULTILINE)
    expected = [(server.title, str(address_of(server.base_url)[1]), server.key) for server in LOCAL_SERVERS]
    assert rows == expected
