"""`dragoman completion`: the script of each shell, in that shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# A command line up to the cursor, and what may follow.
LINES = {
    "dragoman comp": {"completion"},
    "dragoman config ": {"check", "schema", "show"},
    "dragoman completion ": {"bash", "fish", "zsh"},
    "dragoman serve --backend ": {"asyncio", "trio", "uvloop"},
    "dragoman serve --log-f": {"--log-format"},
}


def run(shell: str, script: str) -> list[str]:
    """Return the lines that a shell prints. The command is found by its name, as users have it."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", script],
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def test_bash() -> None:
    """All lines in one shell: each costs a process of the command."""
    script = 'eval "$(dragoman completion bash)"\n'
    for line in LINES:
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        script += f"""
        COMPREPLY=(); COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
        _dragoman_completion dragoman
        echo "${{COMPREPLY[@]}}"
        """
    assert [set(found.split()) for found in run("bash", script)] == list(LINES.values())


@pytest.mark.parametrize("line", LINES)
def test_fish(line: str) -> None:
    found = run("fish", f"dragoman completion fish | source; complete -C '{line}'")
    assert {each.partition("\t")[0] for each in found} == LINES[line]


def test_fish_has_whole_descriptions() -> None:
    found = run("fish", "dragoman completion fish | source; complete -C 'dragoman key'")
    assert found == ["keys\tMake, list and change client keys."]


@pytest.mark.parametrize("line", LINES)
def test_zsh(line: str) -> None:
    # Completion itself needs a terminal: in place of zsh's functions these print what they are given.
    words = " ".join(f"'{word}'" for word in line.split(" "))
    script = f"""
    compdef() {{ :; }}
    compadd() {{ print -l -- ${{(P)${{@[-1]}}}}; }}
    _describe() {{ for each in ${{(P)${{@[-2]}}}} ${{(P)${{@[-1]}}}}; do print -- ${{each%%:*}}; done; }}
    eval "$(dragoman completion zsh)"
    words=({words}); CURRENT={len(line.split(" "))}
    _dragoman_completion
    """
    assert LINES[line] <= set(run("zsh", script))
