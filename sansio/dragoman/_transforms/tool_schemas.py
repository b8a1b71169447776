"""Schemas of tools, in the form that all vendors accept: one that they refuse costs the whole request.

MCP servers describe their tools by any JSON Schema. OpenAI answers "In context=(), object schema missing properties"
(langchain-mcp-adapters#137), "array schema missing items" (mission-control#2634) and "schema must have type 'object'
and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level" (GPT_API_free#403), Anthropic "input_schema does not
support oneOf, allOf, or anyOf at the top level" (mcp-sap-docs#51), Gemini "items: missing field" (CLIProxyAPI#5292, all
read 2026-11-30). What is added here means the same; what is merged is looser, and is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from dragoman._wire.exceptions import child
from dragoman._wire.json import JSON, JSONObject, decode_object, encode, objects_in
from dragoman._wire.json_schema import lacks_items, referenced

_COMBINATIONS = ("allOf", "anyOf", "oneOf")
_REFUSED_AT_TOP = frozenset((*_COMBINATIONS, "enum", "not", "$ref"))
_ONLY_BELOW = "the upstream accepts it below the top of a schema only"
# Of references and combinations within each other. People write three or four.
_MAX_DEPTH = 16
# Keywords with schemas by name, with several and with one.
_BY_NAME = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))
_SEVERAL = frozenset((*_COMBINATIONS, "prefixItems"))
_ONE = frozenset(("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"))
_WITH_SCHEMAS = _BY_NAME | _SEVERAL | _ONE
# All others are left out: some servers write `required: null` for none (MervinPraison/PraisonAI#3111, read 2026-12-01).
_MAY_BE_NULL = ("const", "default")
_NULL = re.compile(rb'"(?!(?:const|default)")[^"]*":null')
# After "array": its object has items. A look at the text takes a third of one at each schema.
_ITEMS_FOLLOW = re.compile(rb'[^{}]*,"items":')


def tidy_schema(schema: JSONObject) -> JSONObject:
    """Return the schema with `items` in each array and without keywords that are null, itself if it is so."""
    text = encode(schema)
    if b":null" not in text or _NULL.search(text) is None:
        if all(map(_ITEMS_FOLLOW.match, text.split(b'"array"')[1:])):
            return schema  # as nearly all are
        if not any(map(lacks_items, _schemas_in(schema))):
            return schema
    copy = decode_object(text, "the schema")
    for each in _schemas_in(copy):
        for key in [key for key, value in each.items() if value is None and key not in _MAY_BE_NULL]:
            del each[key]
        if lacks_items(each):
            each["items"] = {}
    return copy


def plain_schema(schema: JSONObject, path: str, altered: Callable[[str, str], None]) -> JSONObject:
    """Return the schema of a tool as one object with properties, in which all arrays have items.

    altered: is called with place and text for each keyword at the top that is merged or left out.
    """
    schema = tidy_schema(schema)
    if schema.get("type") == "object" and "properties" in schema and _REFUSED_AT_TOP.isdisjoint(schema):
        return schema  # as nearly all are
    top = _resolved(schema, schema)
    if not top.keys().isdisjoint(_COMBINATIONS):
        for key in _COMBINATIONS:
            if key in top:
                altered(child(path, key), f"merged: {_ONLY_BELOW}")
        top = _merged(top, top, set(), _MAX_DEPTH)
    for key in ("enum", "not"):
        if key in top:
            altered(child(path, key), f"left out: {_ONLY_BELOW}")
            top = {name: value for name, value in top.items() if name != key}
    if "type" not in top:
        top = {"type": "object", **top}
    elif type(top["type"]) is list and "object" in top["type"]:
        top = {**top, "type": "object"}  # arguments are never null
    if top["type"] == "object" and "properties" not in top:
        top = {**top, "properties": {}}
    return top


def _resolved(schema: JSONObject, root: JSONObject) -> JSONObject:
    """Return the schema with the definition in the place of a reference that it consists of."""
    reference = schema.get("$ref")
    found = referenced(root, reference) if type(reference) is str else None
    if type(found) is not dict:
        return schema
    return {**found, **{key: value for key, value in schema.items() if key != "$ref"}}


def _merged(schema: JSONObject, root: JSONObject, seen: set[str], depth: int) -> JSONObject:
    """Return the schema with the properties of what it combines, of which those are required that always are.

    seen: references so far. A repeated one adds nothing, since it may be within itself. depth: how many more levels.
    """
    found: dict[str, dict[bytes, JSON]] = {}  # name -> the different schemas of it
    required = dict.fromkeys(_names(schema))
    for key in _COMBINATIONS:
        parts = [_part(part, root, seen, depth) for part in objects_in(schema.get(key))]
        for part in parts:
            for name, each in _properties(part).items():
                found.setdefault(name, {})[encode(each)] = each
        counts = Counter([name for part in parts for name in dict.fromkeys(_names(part))])
        always = 1 if key == "allOf" else len(parts)
        required.update(dict.fromkeys([name for name, count in counts.items() if count >= always]))
    properties = {
        name: next(iter(each.values())) if len(each) == 1 else {"anyOf": [*each.values()]}
        for name, each in found.items()
    }
    rest = {key: value for key, value in schema.items() if key not in _COMBINATIONS}
    merged: JSONObject = {**rest, "properties": {**properties, **_properties(schema)}}
    return {**merged, "required": [*required]} if required else merged


def _part(part: JSONObject, root: JSONObject, seen: set[str], depth: int) -> JSONObject:
    """Return one of the schemas that are combined, itself without combinations."""
    if depth == 0:
        return {}
    reference = part.get("$ref")
    if type(reference) is str:
        if reference in seen:
            return {}
        seen.add(reference)
        part = _resolved(part, root)
        if "$ref" in part:
            return _part(part, root, seen, depth - 1)
    return part if part.keys().isdisjoint(_COMBINATIONS) else _merged(part, root, seen, depth - 1)


def _properties(schema: JSONObject) -> JSONObject:
    found = schema.get("properties")
    return found if type(found) is dict else {}


def _names(schema: JSONObject) -> list[str]:
    found = schema.get("required")
    return [name for name in found if type(name) is str] if type(found) is list else []


def _schemas_in(schema: JSONObject) -> list[JSONObject]:
    """Return the schema and all schemas in it."""
    found = [schema]
    for each in found:
        if each.keys().isdisjoint(_WITH_SCHEMAS):
            continue
        for key in _WITH_SCHEMAS.intersection(each):
            value = each[key]
            if key in _BY_NAME and type(value) is dict:
                value = [*value.values()]
            elif key not in _SEVERAL:
                value = [value]
            found += objects_in(value)
    return found
