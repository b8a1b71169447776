"""Autobahn's cases for servers of WebSockets, those of permessage-deflate among them: `make test-websocket`.

They take ten minutes for each event loop. wstest, of autobahntestsuite, needs Python 2.7 and is in no lock:

    pip2.7 install autobahntestsuite

WSTEST is its command, if it is not called wstest.
"""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from edge import BACKENDS
from websocket_echo import Echo

pytestmark = pytest.mark.process

WSTEST = shlex.split(os.environ.get("WSTEST", "wstest"))
# What the RFC leaves open, or allows and Autobahn would do in another way.
PASSED = {"OK", "INFORMATIONAL", "NON-STRICT"}


@pytest.mark.skipif(
    shutil.which(WSTEST[0]) is None, reason="pip2.7 install autobahntestsuite, and see WSTEST"
)
@pytest.mark.parametrize("name", BACKENDS)
def test_each_case(name: str, tmp_path: Path) -> None:
    with Echo(name, "0") as echo:
        spec = {
            "outdir": str(tmp_path / "report"),
            "servers": [{"agent": name, "url": f"ws://127.0.0.1:{echo.ready().port}"}],
            "cases": ["*"],
            "exclude-cases": [],
            "exclude-agent-cases": {},
        }
        (tmp_path / "spec.json").write_text(json.dumps(spec))
        command = [*WSTEST, "--mode", "fuzzingclient", "--spec", str(tmp_path / "spec.json")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=3600)
    cases = json.loads((tmp_path / "report" / "index.json").read_text())[name]
    assert len(cases) > 500
    found = {case: (result["behavior"], result["behaviorClose"]) for case, result in cases.items()}
    assert {case: result for case, result in found.items() if not PASSED.issuperset(result)} == {}
