"""Commands: files, a command line and its input, and what is printed, as rows of transcripts.txt."""

import itertools
import shlex
from pathlib import Path

import pytest
import rows
from command.cli import run
from config_text import CANARY, LOCAL

SECRET = "a-secret-of-some-length-0123456789"
TEXTS = {
    "$KEY": f'[[client_keys]]\nname = "old"\nhash = "{"0" * 64}"\n',
    "$LOCAL": LOCAL,
    "$CLAUDE": LOCAL.replace("local", "claude")
    .replace("openai_chat", "anthropic_messages")
    .replace("http://127.0.0.1:9000/v1", "https://api.anthropic.com"),
}


def test_what_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()

    def output_of(lines: list[str]) -> list[str]:
        """@ begins a file, $ is the command, and < its input. Files that it makes are shown, too."""
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        monkeypatch.chdir(folder)
        environ = {"DRAGOMAN_PORT": "0", "COLUMNS": "80"}
        file, stdin = Path("none"), ""
        words: list[str] = []
        for line in (line.replace("$CANARY", CANARY).replace("$SECRET", SECRET) for line in lines):
            mark, _, rest = line.partition(" ")
            if mark == "@":
                file = Path(rest)
            elif mark == "<":
                stdin += rest + "\n"
            elif mark == "$":
                words = shlex.split(rest)
            else:
                with file.open("a", encoding="utf-8") as opened:
                    opened.write(TEXTS.get(line) or line + "\n")
                file.chmod(0o600)
        while words[0] != "dragoman":
            name, _, value = words.pop(0).partition("=")
            environ[name] = value
        before = {*folder.iterdir()}
        result = run(*words[1:], body=stdin.encode(), **environ)
        assert CANARY not in result.output, words
        printed = [*result.stdout.splitlines(), *(f"! {line}" for line in result.stderr.splitlines())]
        status = [f"exit {result.exit_code}"] if result.exit_code else []
        status += [f"made {path.name}" for path in sorted({*folder.iterdir()} - before)]
        shown = [line.replace(str(folder), "PWD").replace(str(tmp_path), "TMP") for line in printed]
        return [line for line in shown if line.strip("! ")] + status or ["="]

    rows.check(Path(__file__).with_name("transcripts.txt"), output_of)
