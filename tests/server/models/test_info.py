"""The lists of models of vendors: bodies in, models out."""

import json
from typing import Any

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


# Model objects of each vendor, cut down to the fields that are read.
VENDORS: dict[str, tuple[dict[str, Any], ModelInfo]] = {
    "OpenAI": (
        {"object": "model", "created": 1_754_000_000, "owned_by": "system", "shutdown_date": "2027-01-02"},
        ModelInfo("m", created=1_754_000_000, owned_by="system", retires=1_798_848_000),
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
    "Google": (
        {
            "name": "models/m",
            "displayName": "Model M",
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
        },
        ModelInfo("m", "Model M", context=1_048_576, output=65_536),
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


def test_the_model_object_of_a_vendor() -> None:
    for vendor, (item, expected) in VENDORS.items():
        assert one(**item) == expected, vendor


def test_each_field_for_context_and_output() -> None:
    for path in [*CONTEXT_FIELDS, *OUTPUT_FIELDS]:
        value: Any = 12_345
        for name in reversed(path):
            value = {name: value}
        model = one(**value)
        assert (model.context, model.output) == (
            (12_345, None) if path in CONTEXT_FIELDS else (None, 12_345)
        ), path


def test_no_fact_is_read_from_the_place_of_another() -> None:
    tables = [CONTEXT_FIELDS, OUTPUT_FIELDS, CREATED_FIELDS, RETIRES_FIELDS]
    places = [path for table in tables for path in table]
    assert len(set(places)) == len(places)
    assert {path for path in NAME_FIELDS if path in ID_FIELDS} == {("name",)}


INVALID_COUNTS: list[Any] = [None, True, 0, -1, "8192", 8192.5, [8192], {"n": 1}, 10**11]


def test_an_invalid_number_of_tokens_is_passed_over() -> None:
    for value in INVALID_COUNTS:
        model = one(context_length=value, max_tokens=value, context_window=7, max_output_tokens=8)
        # The next place counts.
        assert (model.context, model.output) == (7, 8), value


CREATED: list[tuple[dict[str, Any], int | None]] = [
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
]


def test_the_creation_time() -> None:
    for fields, seconds in CREATED:
        assert one(**fields).created == seconds, fields


INVALID_FIELDS: list[tuple[str, Any]] = [
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
]


def test_an_invalid_field_is_left_out() -> None:
    for name, value in INVALID_FIELDS:
        assert one(**{name: value}) == ModelInfo("m"), (name, value)


FORMS = [
    ("OpenAI", {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}),
    ("Anthropic", {"data": [{"id": "a"}, {"id": "b"}], "has_more": False, "first_id": "a", "last_id": "b"}),
    ("a bare list", [{"id": "a"}, {"id": "b"}]),
    ("Ollama's own", {"models": [{"name": "a", "model": "a"}, {"name": "b"}]}),
    ("llama.cpp", {"models": [{"name": "x"}], "object": "list", "data": [{"id": "a"}, {"id": "b"}]}),
    ("Google", {"models": [{"name": "models/a"}, {"name": "models/b", "displayName": "B"}]}),
    ("ids alone", {"data": ["a", "b"]}),
    ("with what is no model", {"data": [None, 1, {}, {"id": 1}, {"id": ""}, [], {"id": "a"}, {"id": "b"}]}),
    ("with names that are none", {"data": [{"id": "a"}, {"id": "x\ny"}, {"id": "x" * 257}, {"id": "b"}]}),
]


def test_forms_of_lists() -> None:
    for name, body in FORMS:
        page = read_models(json.dumps(body).encode(), "models/")
        assert [model.id for model in page.models] == ["a", "b"], name
        assert page.next is None, name


INVALID_LISTS = [
    b"",
    b"<html>canary</html>",
    b"{",
    b'"canary"',
    b"null",
    b"{}",
    b'{"data": {"a": "canary"}}',
    b"[" * 100_000,
]


def test_an_invalid_list_is_an_error_that_does_not_quote_it() -> None:
    for body in INVALID_LISTS:
        message = ""
        try:
            read_models(body)
        except RemoteProtocolError as error:
            message = error.message
        assert message, body[:50]
        assert "canary" not in message, body[:50]


NEXT_PAGES: list[tuple[dict[str, Any], str | None]] = [
    ({"has_more": True, "last_id": "b"}, "b"),
    ({"has_more": True, "last_id": "z"}, "z"),
    ({"has_more": True}, "b"),
    ({"has_more": True, "last_id": None}, "b"),
    ({"has_more": True, "last_id": 7}, "b"),
    ({"has_more": False, "last_id": "b"}, None),
    ({"has_more": "yes", "last_id": "b"}, None),
    ({"last_id": "b"}, None),
    ({"nextPageToken": "t=/"}, "t=/"),
    ({"nextPageToken": ""}, None),
]


def test_the_cursor_of_the_next_page() -> None:
    for more, next_id in NEXT_PAGES:
        body = {"data": [{"id": "a"}, {"id": "b"}], **more}
        assert read_models(json.dumps(body).encode()).next == next_id, more


def test_an_empty_page_has_no_next() -> None:
    assert read_models(b'{"data": [], "has_more": true}').next is None
