"""docs/embedding.md: its proxy works against the simulator, and type checkers accept what an embedder copies."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman_server.simulator import create_simulator_app

ROOT = Path(__file__).parents[3]
PAGE, README = (
    re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for name in ("docs/embedding.md", "README.md")
)
(PROXY,) = (code for code in PAGE if "async def messages(" in code)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("model", "stream", "status", "text"),
    [
        ("echo", True, 200, 'data: {"type":"message_stop"}'),
        ("echo", False, 200, '"text":"Hello"'),
        ("error-429", True, 429, "rate_limit_error"),
        ("error-mid", True, 200, "event: error"),
        ("error-mid", False, 529, "overloaded_error"),
        (None, True, 400, "invalid_request_error"),
    ],
)
async def test_the_proxy(model: str | None, stream: bool, status: int, text: str) -> None:
    example: dict[str, Any] = {"__name__": "example"}
    exec(PROXY, example)
    messages = [{"role": "user", "content": "Hello"}]
    body = {"model": model, "max_tokens": 100, "stream": stream, "messages": messages}
    async with (
        httpx2.AsyncClient(transport=httpx2.ASGITransport(create_simulator_app())) as example["HTTP"],
        httpx2.AsyncClient(transport=httpx2.ASGITransport(example["app"])) as client,
    ):
        response = await client.post("http://proxy/v1/messages", content=json.dumps(body))
    assert (response.status_code, text in response.text) == (status, True), response.text


def test_the_examples_have_types(tmp_path: Path) -> None:
    """All but those without annotations, which are about something else."""
    files = [tmp_path / f"example_{number}.py" for number in range(len(README) + len(PAGE))]
    for file, code in zip(files, [*README, *PAGE], strict=True):
        file.write_text(code, "utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--allow-untyped-defs", *map(str, files)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
