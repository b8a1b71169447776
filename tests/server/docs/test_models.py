"""docs/models.md: its names, places and limits are right."""

from pathlib import Path

import pytest

from dragoman_server.models import catalog
from dragoman_server.models import listing as model_lists
from dragoman_server.models.info import CONTEXT_FIELDS, OUTPUT_FIELDS
from dragoman_server.settings import ServerSettings, settings_of
from dragoman_server.settings.server import MODEL_NAMES

TEXT = (Path(__file__).parents[3] / "docs" / "models.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("fact", "fields"), [("tokens that it reads", CONTEXT_FIELDS), ("tokens that it writes", OUTPUT_FIELDS)]
)
def test_the_places_of_context_limits(fact: str, fields: tuple[tuple[str, ...], ...]) -> None:
    names = ", ".join("`" + ".".join(path) + "`" for path in fields)
    assert f"\n| {fact} | {names} |\n" in TEXT


@pytest.mark.parametrize("form", MODEL_NAMES)
def test_each_form_of_names_is_explained(form: str) -> None:
    assert f"\n| `{form}` | " in TEXT


def test_the_figures() -> None:
    text = " ".join(TEXT.split())
    assert settings_of(ServerSettings)["model_names"].default == "both"
    assert "`both` | both names, which is the default" in text
    assert settings_of(ServerSettings)["model_list_ttl_s"].default == 5 * 60
    assert "`model_list_ttl_s` (five minutes)" in text
    assert f"waits up to {catalog.FIRST_WAIT_S:g} seconds" in text
    assert f"within {catalog.REFRESH_S:g} seconds" in text
    assert catalog.RETRY_S == 30
    assert "twice a minute" in text
    assert model_lists.MAX_ACCOUNTS == 3
    assert "three at most" in text
    assert f"{model_lists.MAX_MODELS:,} models, {model_lists.MAX_PAGES} pages" in text
    assert f"pages and {model_lists.MAX_BYTES >> 20} MiB" in text
