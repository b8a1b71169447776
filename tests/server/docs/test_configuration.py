"""docs/configuration.md: its tables are those of the code, and its examples fit the schema."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dragoman import UPSTREAMS
from dragoman_server.cli.commands import main
from dragoman_server.cli.config_output import json_schema
from dragoman_server.settings import (
    ClientKey,
    ModelCapabilitySettings,
    Price,
    ServerSettings,
    UpstreamSettings,
    capability_settings,
    settings_of,
)

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "configuration.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


TABLES = [
    *map(settings_of, (ServerSettings, UpstreamSettings, ModelCapabilitySettings, ClientKey, Price)),
    capability_settings(UPSTREAMS.values()),
]


def test_every_setting_is_there() -> None:
    for table in TABLES:
        for name, key in table.items():
            assert f"| `{name}` |" in TEXT, name
            assert key.help in TEXT, name


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 9


# The schema. No validator is at hand, so this is the part of one that our schema needs.


def problems(schema: Any, value: Any, place: str = "") -> list[str]:
    number = (int, float)
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": number}
    found = []
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return [f"{place}: no {schema['type']}"]
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        found.append(f"{place}: out of range")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: not in the list")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{place}: not of the form")
    if "anyOf" in schema and all(problems(each, value, place) for each in schema["anyOf"]):
        found.append(f"{place}: none of these")
    found += [f"{place}/{name}: missing" for name in schema.get("required", ()) if name not in value]
    if isinstance(value, list) and len(value) < schema.get("minItems", 0):
        found.append(f"{place}: too few")
    if isinstance(value, list) and schema.get("uniqueItems") and len(set(value)) < len(value):
        found.append(f"{place}: not unique")
    if isinstance(value, list) and "items" in schema:
        for index, element in enumerate(value):
            found += problems(schema["items"], element, f"{place}/{index}")
    if isinstance(value, dict) and "type" in schema:
        for name, element in value.items():
            rule = schema.get("properties", {}).get(name, schema["additionalProperties"])
            found += problems(rule, element, f"{place}/{name}") if rule else [f"{place}/{name}: unknown"]
    return found


def test_an_example_fits_the_schema() -> None:
    for text in EXAMPLES:
        assert problems(json_schema(), tomllib.loads(text)) == [], text


UPSTREAM = '[[upstreams]]\nname = "a"\nbase_url = "http://a"\n'


INVALID: list[tuple[str, str]] = [
    ("[sever]", "/sever: unknown"),
    ("server = 1", "/server: no object"),
    ("models = 1", "/models: no object"),
    ("[server]\nprot = 1", "/server/prot: unknown"),
    ("[server]\nport = 70000", "/server/port: out of range"),
    ('[server]\nport = "1"', "/server/port: no integer"),
    ('[server]\nbackend = "tri"', "/server/backend: none of these"),
    ("[server]\ncors_origins = [1]", "/server/cors_origins/0: no string"),
    (UPSTREAM, "/upstreams/0: none of these"),
    ('[[upstreams]]\nprotocol = "openai_chat"\nname = "a"', "/upstreams/0/base_url: missing"),
    (UPSTREAM + 'protocols = ["chat"]', "/upstreams/0/protocols/0: none of these"),
    (UPSTREAM + 'protocol = "openai_chat"\nsampling = "no"', "/upstreams/0/sampling: no boolean"),
    (UPSTREAM + 'protocol = "openai_chat"\nheaders = { a = 1 }', "/upstreams/0/headers/a: no string"),
    (UPSTREAM + 'protocols = ["openai_chat", "openai_chat"]', "/upstreams/0/protocols: not unique"),
    ('[models]\nfast = "a"', "/models/fast: none of these"),
    ("[models]\nfast = []", "/models/fast: none of these"),
    ('[models]\nfast = ["up/a", "b"]', "/models/fast: none of these"),
    ("[[rules]]\nstatuses = [99]", "/rules/0/statuses/0: out of range"),
    ("[[rules]]\nstatuses = [600]", "/rules/0/statuses/0: out of range"),
    ("[[capabilities]]\nsampling = true", "/capabilities/0/model: missing"),
    ('[[capabilities]]\nmodel = "a"\nname = "b"', "/capabilities/0/name: unknown"),
    ('[[client_keys]]\nname = "a"', "/client_keys/0/hash: missing"),
]


def test_invalid_documents_break_the_schema() -> None:
    for text, problem in INVALID:
        assert problem in problems(json_schema(), tomllib.loads(text)), text


# The arrays of tables, and the keys that each of their tables must have.
ARRAYS: dict[str, list[str]] = {
    "upstreams": ["name", "base_url"],
    "capabilities": ["model"],
    "client_keys": ["name", "hash"],
    "prices": ["model", "input", "output"],
    "accounts": ["upstream", "name"],
    "rules": ["action"],
}


@pytest.mark.parametrize(("name", "required"), ARRAYS.items())
def test_an_array_has_tables_of_known_keys(name: str, required: list[str]) -> None:
    assert problems(json_schema(), {name: 1}) == [f"/{name}: no array"]
    assert problems(json_schema(), {name: [1]}) == [f"/{name}/0: no object"]
    found = [problem for problem in problems(json_schema(), {name: [{"x": 1}]}) if "none of" not in problem]
    assert found == [*(f"/{name}/0/{key}: missing" for key in required), f"/{name}/0/x: unknown"]


@pytest.mark.parametrize("protocols", ['protocol = "openai_chat"', 'protocols = ["openai_chat"]'])
def test_an_upstream_has_one_protocol_or_several(protocols: str) -> None:
    assert problems(json_schema(), tomllib.loads(UPSTREAM + protocols)) == []


def test_a_reference_fits_where_a_choice_does() -> None:
    text = '[server]\nbackend = "${BACKEND}"\n[models]\nfast = "${MODEL}"'
    assert problems(json_schema(), tomllib.loads(text)) == []


def test_defaults_fit_their_own_rules() -> None:
    properties: Any = json_schema()["properties"]
    for table, count in ((properties["server"], 10), (properties["upstreams"]["items"], 10)):
        defaults = {name: each["default"] for name, each in table["properties"].items() if "default" in each}
        assert len(defaults) >= count
        assert problems({**table, "required": (), "anyOf": [{}]}, defaults) == []


def test_the_command_prints_the_schema() -> None:
    result = CliRunner().invoke(main, ["config", "schema"])
    assert (result.exit_code, json.loads(result.stdout)) == (0, json_schema())
