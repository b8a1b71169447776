"""The page at /docs: an OpenAPI description as HTML.

It is one file without a script that fetches nothing, so it can be saved, and its style is allowed by its hash.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dragoman.jsontext import JSONObject
from dragoman_server.wire.headers import HeaderList

_STYLE = Path(__file__).with_name("description_page.css").read_text("utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

PAGE_HEADERS: HeaderList = [
    ("content-type", "text/html; charset=utf-8"),
    (
        "content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
    ),
    # Its own address may have a key in it.
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
]

_LIMITS = {"minimum": "at least {}", "maximum": "at most {}", "minItems": "at least {}", "pattern": "as {}"}


def page(document: JSONObject) -> str:
    """Return the page of an OpenAPI description."""
    info, components = document["info"], document["components"]["schemas"]
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    sections = [
        f"<h2>{escape(tag['name'].capitalize())}</h2><p>{escape(tag['description'])}</p>"
        + "".join(_operation(*each) for each in operations if tag["name"] in each[2]["tags"])
        for tag in document["tags"]
    ]
    types = [
        f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3><p>{escape(schema.get("description", ""))}</p>'
        + _table(_members(schema))
        for name, schema in components.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{escape(info['title'])} API</h1>"
        f'<p class="faint">Version {escape(info["version"])}. {escape(info["summary"])}. '
        'The same for programs: <a href="openapi.json">openapi.json</a> (OpenAPI 3.1).</p>'
        f"{''.join(sections)}<h2>Types</h2>{''.join(types)}</main></body></html>"
    )


def _operation(method: str, path: str, operation: JSONObject) -> str:
    parts = []
    link = operation.get("externalDocs")
    if link is not None:
        parts.append(f'<p><a href="{escape(link["url"])}">{escape(link["description"])}</a></p>')
    keys = [name for scheme in operation["security"] for name in scheme]
    parts.append(f"<p>Key: {escape(' or '.join(keys) or 'none')}</p>")
    parameters = [
        (each["name"], f"{escape(each['description'])}: {_type(each['schema'])}")
        for each in operation["parameters"]
    ]
    if parameters:
        parts.append(f"<h3>Parameters</h3>{_table(parameters)}")
    if "requestBody" in operation:
        parts.append(f"<h3>Request</h3>{_content(operation['requestBody'])}")
    answers = [
        (status, f"{escape(answer['description'])}{_content(answer)}")
        for status, answer in operation["responses"].items()
    ]
    parts.append(f"<h3>Responses</h3>{_table(answers)}")
    return (
        f'<details id="{operation["operationId"]}"><summary><b>{method.upper()}</b> <code>{escape(path)}</code>'
        f"<span>{escape(operation['summary'])}</span></summary><div>{''.join(parts)}</div></details>"
    )


def _content(holder: Mapping[str, Any]) -> str:
    return "".join(
        f"<p><code>{escape(name)}</code>{': ' * bool(each['schema'])}{_type(each['schema'])}</p>"
        for name, each in holder["content"].items()
    )


def _members(schema: JSONObject) -> list[tuple[str, str]]:
    required = schema.get("required", ())
    found = []
    for name, member in schema.get("properties", {}).items():
        text = member.get("description")
        notes = [
            _type(member),
            *([] if name in required else ["optional"]),
            *([escape(text)] if text else []),
        ]
        found.append((name, "; ".join(notes)))
    return found


def _table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and what they mean, in HTML."""
    lines = "".join(f"<tr><th><code>{escape(name)}</code></th><td>{text}</td></tr>" for name, text in rows)
    return f"<table>{lines}</table>" if lines else ""


def _type(schema: Mapping[str, Any]) -> str:
    """Return what a schema allows, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    values: Sequence[Any] = [schema["const"]] if "const" in schema else schema.get("enum", ())
    if values:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in values)
    kind = escape(str(schema.get("type", "any value" if schema else "")))
    if kind == "array" and "prefixItems" in schema:
        return f"array: {', '.join(map(_type, schema['prefixItems']))}"
    if kind == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}"
    limits = [escape(text.format(schema[name])) for name, text in _LIMITS.items() if name in schema]
    return ", ".join([kind, *limits])
