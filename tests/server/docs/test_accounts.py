"""docs/accounts.md: its examples load, its figures are those of the code."""

import re
import tomllib
from pathlib import Path

import pytest

from dragoman_server.accounts.stores.tables import CONVERSATION_S
from dragoman_server.config.loader import load
from dragoman_server.policy.attempts import MAX_ATTEMPTS, Selection
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Backoff

DOCS = Path(__file__).resolve().parents[3] / "docs"
TEXT = (DOCS / "accounts.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", range(len(EXAMPLES)))
def test_an_example_loads(example: int, tmp_path: Path) -> None:
    file = tmp_path / "dragoman.toml"
    # The later ones belong to the upstream of the first.
    file.write_text(EXAMPLES[0] if example == 0 else EXAMPLES[0] + EXAMPLES[example], "utf-8")
    settings = load(environ={"KEY_ONE": "a", "KEY_TWO": "b"}, path=str(file)).settings
    assert [account.id for account in settings.accounts] == ["anthropic/one", "anthropic/two"]
    assert settings.models["claude-*"] == ("anthropic/claude-sonnet-4-6", "spare/qwen3")
    assert len(settings.rules) == len(tomllib.loads(file.read_text("utf-8")).get("rules", []))


def test_every_selection_and_error_action_has_a_row() -> None:
    assert all(f"| `{each.value}` |" in TEXT for each in Selection)
    assert all(f"| `{each.value}` |" in TEXT for each in ErrorAction)


def test_the_figures() -> None:
    backoff, text = Backoff(), " ".join(TEXT.split())
    assert (
        f"without a time {backoff.rate_limit_s:g} s, which double up to {backoff.max_s / 60:g} minutes"
        in text
    )
    assert "after three such errors" in text
    assert backoff.max_failures == 3
    failures = f"{backoff.failure_s:g} s, which double up to {backoff.max_failure_s:g} s"
    assert f"in {backoff.window_s:g} s the account cools down for {failures}" in text
    assert backoff.jitter == 0.1
    assert f"{MAX_ATTEMPTS} by default" in text
    assert CONVERSATION_S == 3600
