"""The list of models, judged with the types of the vendors' own SDKs."""

import json

import pytest
from anthropic.types import ModelInfo
from openai.types import Model
from oracle import check_models

from dragoman_server.catalog import model_list, one_model
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings

SETTINGS = Settings(
    server=ServerSettings(simulator=False),
    upstreams=(
        UpstreamSettings(
            name="up", protocol="openai_chat", base_url="http://127.0.0.1:9/v1", models=("a", "b/c")
        ),
        UpstreamSettings(name="other", protocol="anthropic_messages", base_url="http://127.0.0.1:9"),
    ),
    models={"fast": "up/a", "gpt-*": "up/a", "far": "other/claude", "lost": "gone/x"},
)
NAMES = ["fast", "far", "lost", "up/a", "up/b/c"]


def test_in_the_form_of_openai() -> None:
    answer = model_list(SETTINGS, anthropic=False)
    assert check_models("openai_chat", json.dumps(answer).encode()) == []
    assert [entry["id"] for entry in answer["data"]] == NAMES  # type: ignore[attr-defined]
    owners = {entry["id"]: entry["owned_by"] for entry in answer["data"]}  # type: ignore[attr-defined]
    assert owners == {"fast": "up", "far": "other", "lost": "dragoman", "up/a": "up", "up/b/c": "up"}


def test_in_the_form_of_anthropic() -> None:
    answer = model_list(SETTINGS, anthropic=True)
    assert check_models("anthropic_messages", json.dumps(answer).encode()) == []
    assert [entry["id"] for entry in answer["data"]] == NAMES  # type: ignore[attr-defined]
    assert (answer["first_id"], answer["last_id"], answer["has_more"]) == ("fast", "up/b/c", False)


@pytest.mark.parametrize("anthropic", [True, False])
def test_without_models(anthropic: bool) -> None:
    settings = Settings(server=ServerSettings(simulator=False))
    answer = model_list(settings, anthropic)
    protocol = "anthropic_messages" if anthropic else "openai_chat"
    assert check_models(protocol, json.dumps(answer).encode()) == []
    assert answer["data"] == []


@pytest.mark.parametrize("name", NAMES)
def test_one_model(name: str) -> None:
    assert Model.model_validate(one_model(SETTINGS, name, anthropic=False)).id == name
    assert ModelInfo.model_validate(one_model(SETTINGS, name, anthropic=True)).id == name


@pytest.mark.parametrize("name", ["", "gpt-*", "gpt-5", "up", "up/", "Fast"])
@pytest.mark.parametrize("anthropic", [True, False])
def test_what_is_not_listed(name: str, anthropic: bool) -> None:
    assert one_model(SETTINGS, name, anthropic) is None


def test_the_simulators_models_are_listed() -> None:
    names = [entry["id"] for entry in model_list(Settings(), anthropic=False)["data"]]  # type: ignore[attr-defined]
    assert "sim/echo" in names
    assert all(name.startswith("sim/") for name in names)
