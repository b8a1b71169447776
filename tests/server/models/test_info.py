"""The lists of models of vendors: bodies in, models out."""

import json
from pathlib import Path
from typing import Any

import pytest
import rows
from msgspec.structs import fields

from dragoman import RemoteProtocolError
from dragoman_server.models.info import (
    CONTEXT_FIELDS,
    CREATED_FIELDS,
    ID_FIELDS,
    NAME_FIELDS,
    OUTPUT_FIELDS,
    RETIRES_FIELDS,
    ModelInfo,
    read_models,
)


def read(lines: list[str]) -> list[str]:
    is_list = lines[0].startswith("list ")
    body = lines[0].removeprefix("list ") if is_list else json.dumps([{"id": "m"} | json.loads(lines[0])])
    try:
        page = read_models(body.encode(), "models/")
    except RemoteProtocolError as error:
        return [f"error: {error.message}"]
    next_page = [f"next: {page.next}"] if page.next is not None else []
    return [shown(model) for model in page.models] + next_page or ["nothing"]


def shown(model: ModelInfo) -> str:
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    return ", ".join(f"{name}={value!r}" for name, value in values.items() if value not in (None, {}))


def test_the_models_of_a_list() -> None:
    rows.check(Path(__file__).with_name("lists.txt"), read)


@pytest.mark.parametrize("body", [b"", b"[" * 100_000])
def test_a_body_that_no_row_can_show_is_an_error(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_models(body)


def test_each_field_for_context_and_output() -> None:
    for path in [*CONTEXT_FIELDS, *OUTPUT_FIELDS]:
        value: Any = 12_345
        for name in reversed(path):
            value = {name: value}
        (model,) = read_models(json.dumps([{"id": "m", **value}]).encode()).models
        found = (model.context, model.output)
        assert found == (12_345, None) if path in CONTEXT_FIELDS else (None, 12_345), path


def test_no_fact_is_read_from_the_place_of_another() -> None:
    tables = [CONTEXT_FIELDS, OUTPUT_FIELDS, CREATED_FIELDS, RETIRES_FIELDS]
    places = [path for table in tables for path in table]
    assert len(set(places)) == len(places)
    assert {path for path in NAME_FIELDS if path in ID_FIELDS} == {("name",)}
