"""Settings in which every secret that a configuration can hold is a canary, and all forms in which it may get out."""

import base64
import html
import json
import re
from typing import Any, get_type_hints
from urllib.parse import quote

from dragoman_server import settings as tables
from dragoman_server.settings import AccountSettings, AwsKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.fields import SettingKind
from dragoman_server.settings.secret import Secret

SECRET_KINDS = frozenset({SettingKind.SECRET, SettingKind.PROXY, SettingKind.HEADERS})

_STORE, _PROXY, _ACCOUNT_PROXY = "canary/of+the store", "canary-of-the-proxy", "canary-of-an-accounts-proxy"
_CREDENTIALS = base64.b64encode(b"team:canary-of-basic-credentials").decode()

# By table and key: what is set there.
CANARIES: dict[tuple[str, str], Any] = {
    ("ServerSettings", "secret"): Secret("canary-of-the-secret-0123456789-abcdef"),
    ("ServerSettings", "admin_key"): Secret("canary-of-the-admin-0123456789-abcdef"),
    ("ServerSettings", "account_store_url"): Secret(f"valkey://user:{quote(_STORE, safe='')}@127.0.0.1:1/0"),
    ("UpstreamSettings", "api_key"): Secret('sk-canary/"of\\the"-upstream+0123456789=='),
    ("UpstreamSettings", "headers"): {
        "x-team": Secret("canary-of-a-header"),
        "x-credentials": Secret(f"Basic {_CREDENTIALS}"),
        "x-key": Secret("Bearer canary-of-a-bearer"),
    },
    ("UpstreamSettings", "proxy"): Secret(f"http://me:{_PROXY}@127.0.0.1:1"),
    ("AccountSettings", "api_key"): Secret("sk-canary-of-an-account-0123456789"),
    ("AccountSettings", "proxy"): Secret(f"http://me:{_ACCOUNT_PROXY}@127.0.0.1:1"),
    ("ServerSettings", "budget_webhook"): Secret("https://hooks.test/canary-of-the-webhook-0123456789"),
    ("ServerSettings", "metrics_key"): Secret("canary-of-the-metrics-0123456789-abcdef"),
    ("ServerSettings", "response_store_url"): Secret(
        "valkey://user:canary-of-the-response-store@127.0.0.1:1/0"
    ),
    ("AwsKey", "secret_access_key"): Secret("canary-of-an-aws-key/0123456789+abcdef"),
    ("ServerSettings", "usage_store_url"): Secret("valkey://user:canary-of-the-usage-store@127.0.0.1:1/0"),
}

# What each of them is known by, also where a part of it is missing. No text may have any.
CANARY_TEXTS = (
    "canary-of-the-secret",
    "canary-of-the-admin",
    _STORE,
    quote(_STORE, safe=""),
    'canary/"of\\the"-upstream',
    "canary-of-a-header",
    "canary-of-basic-credentials",
    _CREDENTIALS,
    "canary-of-a-bearer",
    _PROXY,
    "canary-of-an-account-",
    _ACCOUNT_PROXY,
    base64.b64encode(f"me:{_PROXY}".encode()).decode()[:16],
    "canary-of-the-metrics",
    "canary-of-the-webhook",
    "canary-of-the-usage-store",
    "canary-of-an-aws-key",
)


# Parts of them that are secrets by themselves.
WHOLE = (
    _STORE,
    quote(_STORE, safe=""),
    "canary-of-basic-credentials",
    _CREDENTIALS,
    "canary-of-a-bearer",
    _PROXY,
    _ACCOUNT_PROXY,
)


def secret_keys() -> set[tuple[str, str]]:
    """Table and key of every setting that holds a secret."""
    return {
        (cls.__name__, key.name)
        for cls in _CLASSES
        for key in tables.settings_of(cls).values()
        if key.kind in SECRET_KINDS
    }


def secret_fields() -> set[tuple[str, str]]:
    """The same by the types of the fields."""
    return {
        (cls.__name__, name)
        for cls in _CLASSES
        for name, hint in get_type_hints(cls).items()
        if "Secret" in str(hint)
    }


_CLASSES: list[type] = [Settings, ServerSettings, *tables.ARRAYS.values()]


def _of(cls: type) -> dict[str, Any]:
    return {key: value for (table, key), value in CANARIES.items() if table == cls.__name__}


def settings(protocol: str = "openai_chat", base_url: str | None = None, **server: Any) -> Settings:
    """Upstream `up`, which speaks `protocol`, and upstream `two` with an account."""
    base = "http://up.corp.test" if protocol == "anthropic_messages" else "http://up.corp.test/v1"
    return Settings(
        server=ServerSettings(**{"simulator": False, **_of(ServerSettings), **server}),
        upstreams=(
            UpstreamSettings(
                name="up", protocol=protocol, base_url=base_url or base, **_of(UpstreamSettings)
            ),
            UpstreamSettings(name="two", protocol="openai_chat", base_url="http://two.corp.test/v1"),
        ),
        accounts=(AccountSettings(upstream="two", name="a", **_of(AccountSettings)),),
        aws_keys=(AwsKey(access_key_id="AKID", client_key="ci", **_of(AwsKey)),),
    )


def all_values() -> list[str]:
    """What the settings hold, as text."""
    found: list[str] = []
    for value in CANARIES.values():
        found += [each.reveal() for each in (value.values() if isinstance(value, dict) else [value])]
    return found


def repeated() -> str:
    """The words of a server that repeats all that it can have received, in all forms that it may give them."""
    key = CANARIES["UpstreamSettings", "api_key"].reveal()
    proxy = f"me:{_PROXY}"
    texts = [
        *all_values(),
        *WHOLE,
        *sorted(_forms_of(key)),
        base64.b64encode(f"{key}:".encode()).decode(),
        base64.b64encode(proxy.encode()).decode(),
    ]
    return "no: " + " ".join(texts)


def _forms_of(text: str) -> set[str]:
    """A text as it is in URLs, JSON, HTML, and in base64 as far as that does not depend on what follows."""
    quoted, escaped = quote(text, safe=""), json.dumps(text)[1:-1]
    whole = base64.b64encode(text.encode())[: len(text) // 3 * 4].decode()
    return {
        text,
        quoted,
        re.sub("%..", lambda match: match[0].lower(), quoted),
        escaped,
        escaped.replace("/", "\\/"),
        html.escape(text),
        whole,
    }


def leaked(text: str | bytes) -> list[str]:
    """The secrets in a text."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return sorted(form for word in CANARY_TEXTS for form in _forms_of(word) if form in text)
