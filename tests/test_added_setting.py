"""A new plain setting is one row in the shape of each protocol that has it, and one row of the fidelity page's data.

Copies of the core and of the page's generator get just these rows, and run in their own process.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

SHARED = '    "toy_level": Setting("toy_level", NUMBER),\n'
ONLY_CHAT = '    "toy_switch": Setting(None, BOOLEAN),\n'
PAGE_ROW = '"toy_level": 0.5\n'

SCRIPT = """
import json, sys
from dragoman import RemoteProtocolError, RequestTranslator
from dragoman.codec import Capabilities
from fidelity import page

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}

def translated(upstream, relay="same", **members):
    translator = RequestTranslator(client=CHAT, upstream=upstream, capabilities=Capabilities(relay=relay))
    out = translator.translate(json.dumps({**BODY, **members}).encode())
    body = json.loads(out.body)
    losses = [[loss.code.value, loss.path] for loss in out.losses]
    return [{name: body[name] for name in members if name in body}, losses]

def refusal(**members):
    try:
        translated(RESPONSES, **members)
    except RemoteProtocolError as error:
        return str(error)

print(json.dumps({
    "carried": translated(RESPONSES, toy_level=0.5),
    "lost": translated(MESSAGES, toy_level=0.5),
    "relayed": translated(CHAT, toy_level=0.5, toy_switch=True),
    "rewritten": translated(CHAT, "rewrite", toy_level=0.5, toy_switch=True),
    "only of its protocol": translated(RESPONSES, toy_switch=True),
    "null": translated(MESSAGES, toy_level=None, toy_switch=None),
    "wrong": [refusal(toy_level="0.5"), refusal(toy_switch=1)],
    "page": [line for line in page.page().splitlines() if "toy_level" in line],
}))
"""


def add_row(file: Path, mark: str, row: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(mark) == 1, (file, mark)
    file.write_text(text.replace(mark, row + mark), "utf-8")


def run_with_rows(directory: Path) -> dict[str, Any]:
    copy = directory / "copy"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "sansio" / "dragoman", copy / "sansio" / "dragoman", ignore=ignore)
    shutil.copytree(ROOT / "docs" / "_generate", copy / "docs", ignore=ignore)
    protocols = copy / "sansio" / "dragoman" / "protocols"
    for name, row in (("openai_chat", SHARED + ONLY_CHAT), ("openai_responses", SHARED)):
        shapes = protocols / name / "shapes.py"
        add_row(shapes, '    "temperature": Setting("temperature"', row)
        imported = "from dragoman._ir.shape import BOOLEAN, NUMBER\n"
        add_row(shapes, "from dragoman._ir.shape import (\n", imported)
    add_row(copy / "docs" / "fidelity" / "rows" / "openai_chat.txt", '"temperature": 0.5\n', PAGE_ROW)
    path = os.pathsep.join(str(each) for each in (copy / "sansio", copy / "docs", ROOT / "server"))
    env = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_new_plain_setting_is_one_row(tmp_path: Path) -> None:
    found = run_with_rows(tmp_path)
    assert found["carried"] == [{"toy_level": 0.5}, []]
    assert found["lost"] == [{}, [["dropped", "/toy_level"]]]
    assert found["relayed"] == found["rewritten"] == [{"toy_level": 0.5, "toy_switch": True}, []]
    assert (found["only of its protocol"], found["null"]) == ([{}, [["dropped", "/toy_switch"]]], [{}, []])
    expected = ["toy_level must be a number, not a string", "toy_switch must be a boolean, not a number"]
    assert found["wrong"] == expected
    lost = "left out: the upstream's protocol has no such setting (`dropped`)"
    assert found["page"] == [f"| `toy_level` | {lost} | `toy_level` | {lost} |"]
