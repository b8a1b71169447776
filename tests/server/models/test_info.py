"""What is read from a vendor's list of models: bodies in, models out."""

import json
from typing import Any

import pytest

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


def read(*items: Any, **more: Any) -> tuple[ModelInfo, ...]:
    return read_models(json.dumps({"data": list(items), **more}).encode()).models


def one(**item: Any) -> ModelInfo:
    (model,) = read({"id": "m", **item})
    return model


# What each vendor sends, cut down to what is read.
VENDORS: dict[str, tuple[dict[str, Any], ModelInfo]] = {
    "OpenAI": (
        {"object": "model", "created": 1_754_000_000, "owned_by": "system", "shutdown_date": "2027-01-02"},
        ModelInfo("m", created=1_754_000_000, retires=1_798_848_000),
    ),
    "Anthropic": (
        {
            "type": "model",
            "display_name": "The Model",
            "created_at": "2026-02-03T00:00:00Z",
            "lifecycle": "deprecated",
            "max_input_tokens": 200_000,
            "max_tokens": 64_000,
            "line": "opus",
            "deprecated_at": "2026-09-01T00:00:00Z",
            "retires_at": "2027-01-02T00:00:00Z",
            "capabilities": {"batch": {"supported": True}},
        },
        ModelInfo(
            "m",
            "The Model",
            context=200_000,
            output=64_000,
            created=1_770_076_800,
            retires=1_798_848_000,
            lifecycle="deprecated",
            anthropic={
                "line": "opus",
                "deprecated_at": "2026-09-01T00:00:00Z",
                "capabilities": {"batch": {"supported": True}},
            },
        ),
    ),
    "OpenRouter": (
        {
            "name": "Maker: Model",
            "created": 1_754_000_000,
            "context_length": 131_072,
            "architecture": {"modality": "text->text"},
            "top_provider": {"context_length": 32_768, "max_completion_tokens": 16_384},
        },
        ModelInfo("m", "Maker: Model", context=131_072, output=16_384, created=1_754_000_000),
    ),
    "Groq": (
        {"active": True, "context_window": 131_072, "max_completion_tokens": 32_768},
        ModelInfo("m", context=131_072, output=32_768),
    ),
    "Mistral": ({"name": "m", "max_context_length": 32_768}, ModelInfo("m", "m", context=32_768)),
    "vLLM": ({"root": "/models/m", "parent": None, "max_model_len": 8192}, ModelInfo("m", context=8192)),
    "llama.cpp": (
        {"meta": {"n_vocab": 9, "n_ctx": 4096, "n_ctx_train": 32_768}},
        ModelInfo("m", context=4096),
    ),
    "older llama.cpp": ({"meta": {"n_ctx_train": 32_768}}, ModelInfo("m", context=32_768)),
    "llama.cpp, not loaded": ({"meta": None}, ModelInfo("m")),
    "LM Studio": (
        {"max_context_length": 32_768, "loaded_context_length": 4096},
        ModelInfo("m", context=4096),
    ),
    "DeepInfra": (
        {"metadata": {"context_length": 40_960, "max_tokens": 8192}},
        ModelInfo("m", context=40_960, output=8192),
    ),
}


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_a_vendor_says(vendor: str) -> None:
    item, expected = VENDORS[vendor]
    assert one(**item) == expected


@pytest.mark.parametrize("path", [*CONTEXT_FIELDS, *OUTPUT_FIELDS], ids="/".join)
def test_each_field_alone(path: tuple[str, ...]) -> None:
    value: Any = 12_345
    for name in reversed(path):
        value = {name: value}
    model = one(**value)
    assert (model.context, model.output) == ((12_345, None) if path in CONTEXT_FIELDS else (None, 12_345))


def test_no_fact_is_read_from_the_place_of_another() -> None:
    tables = [CONTEXT_FIELDS, OUTPUT_FIELDS, CREATED_FIELDS, RETIRES_FIELDS]
    places = [path for table in tables for path in table]
    assert len(set(places)) == len(places)
    assert {path for path in NAME_FIELDS if path in ID_FIELDS} == {("name",)}


@pytest.mark.parametrize("value", [None, True, 0, -1, "8192", 8192.5, [8192], {"n": 1}, 10**11])
def test_what_is_no_number_of_tokens(value: Any) -> None:
    model = one(context_length=value, max_tokens=value, context_window=7, max_output_tokens=8)
    # The next place counts.
    assert (model.context, model.output) == (7, 8)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"created": 1_770_076_800}, 1_770_076_800),
        ({"created": 1_770_076_800.5}, 1_770_076_800),
        ({"created_at": "2026-02-03T00:00:00Z"}, 1_770_076_800),
        ({"created_at": "2026-02-03T01:00:00.25+01:00"}, 1_770_076_800),
        ({"created_at": "2026-02-03"}, 1_770_076_800),
        ({"created_at": 1_770_076_800}, 1_770_076_800),
        ({"created": 0, "created_at": "2026-02-03T00:00:00Z"}, 1_770_076_800),
        ({"created": "soon", "created_at": "2026-02-03T00:00:00Z"}, 1_770_076_800),
        ({"created": 0}, None),
        ({"created_at": "1970-01-01T00:00:00Z"}, None),
        ({"created": True}, None),
        ({"created": 1e300}, None),
        ({"created": 10**18}, None),
        ({"created": -(10**15)}, None),
        ({"created": []}, None),
        ({}, None),
    ],
)
def test_when_it_was_made(fields: dict[str, Any], seconds: int | None) -> None:
    assert one(**fields).created == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lifecycle", "gone"),
        ("lifecycle", ["active"]),
        ("line", 5),
        ("deprecated_at", 5),
        ("capabilities", "all"),
        ("display_name", ["a"]),
        ("display_name", "a\nb"),
        ("display_name", ""),
        ("display_name", "a" * 201),
        ("retires_at", "never"),
    ],
)
def test_what_is_badly_said_is_not_known(name: str, value: Any) -> None:
    assert one(**{name: value}) == ModelInfo("m")


FORMS = [
    ("OpenAI", {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}),
    ("Anthropic", {"data": [{"id": "a"}, {"id": "b"}], "has_more": False, "first_id": "a", "last_id": "b"}),
    ("a bare list", [{"id": "a"}, {"id": "b"}]),
    ("Ollama's own", {"models": [{"name": "a", "model": "a"}, {"name": "b"}]}),
    ("llama.cpp", {"models": [{"name": "x"}], "object": "list", "data": [{"id": "a"}, {"id": "b"}]}),
    ("ids alone", {"data": ["a", "b"]}),
    ("with what is no model", {"data": [None, 1, {}, {"id": 1}, {"id": ""}, [], {"id": "a"}, {"id": "b"}]}),
    ("with names that are none", {"data": [{"id": "a"}, {"id": "x\ny"}, {"id": "x" * 257}, {"id": "b"}]}),
]


@pytest.mark.parametrize("body", [body for _, body in FORMS], ids=[name for name, _ in FORMS])
def test_forms_of_lists(body: Any) -> None:
    page = read_models(json.dumps(body).encode())
    assert [model.id for model in page.models] == ["a", "b"]
    assert page.next is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>canary</html>",
        b"{",
        b'"canary"',
        b"null",
        b"{}",
        b'{"data": {"a": "canary"}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_list(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_models(body)
    assert "canary" not in caught.value.message


@pytest.mark.parametrize(
    ("more", "next_id"),
    [
        ({"has_more": True, "last_id": "b"}, "b"),
        ({"has_more": True, "last_id": "z"}, "z"),
        ({"has_more": True}, "b"),
        ({"has_more": True, "last_id": None}, "b"),
        ({"has_more": True, "last_id": 7}, "b"),
        ({"has_more": False, "last_id": "b"}, None),
        ({"has_more": "yes", "last_id": "b"}, None),
        ({"last_id": "b"}, None),
    ],
)
def test_what_the_next_page_is_asked_with(more: dict[str, Any], next_id: str | None) -> None:
    body = {"data": [{"id": "a"}, {"id": "b"}], **more}
    assert read_models(json.dumps(body).encode()).next == next_id


def test_an_empty_page_has_no_next() -> None:
    assert read_models(b'{"data": [], "has_more": true}').next is None
