"""Fetch the model list of an upstream, page after page.

The list is requested where the upstream's own SDK would request it, with the key of an account. After a response that
is about the account only (a wrong key, a limit) the next account is tried. Bytes, pages and models are limited, and the
caller limits the time.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import anyio

from dragoman import UPSTREAMS, RemoteProtocolError
from dragoman.codec import UpstreamSpec
from dragoman_server.capabilities.cloud_apis import cloud_api_of
from dragoman_server.models.info import ModelInfo, read_models
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.upstream.account_request import account_get
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender

# OpenRouter's list has some 400 models and 2 MB. A larger body is not a list of models, or an attack.
MAX_BYTES = 16 * 2**20
MAX_PAGES = 20
MAX_MODELS = 5000
# The number of accounts that are tried for one list.
MAX_ACCOUNTS = 3

# Statuses that are about the account: another one may get the list.
_ACCOUNT_STATUSES = frozenset({401, 402, 403, 429})


class ModelListError(Exception):
    """There is no list. `str()` of it is for the log: it has neither keys nor the upstream's text."""


class AccountRefused(ModelListError):
    """The account was refused: its key is missing or wrong, or it is at a limit."""


def can_list(upstream: UpstreamSettings, specs: Mapping[str, UpstreamSpec] = UPSTREAMS) -> bool:
    """True if the settings request this upstream's list and its protocol has one. specs: see Gateway.upstreams."""
    spec, api = specs.get(upstream.protocol), cloud_api_of(upstream)
    has_list = spec is not None and spec.model_list is not None and (api is None or api.lists_models)
    return upstream.model_list and has_list


async def fetch_models(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    accounts: Sequence[AccountSettings],
    specs: Mapping[str, UpstreamSpec] = UPSTREAMS,
) -> tuple[ModelInfo, ...]:
    """Return all models that the upstream lists, each once. Needs can_list(). Raises ModelListError."""
    if not accounts:
        raise ModelListError("no account can be used")
    refusal = None
    for account in accounts[:MAX_ACCOUNTS]:
        try:
            return await _fetch_with(sender, upstream, account, specs)
        except AccountRefused as error:
            refusal = error
        except UpstreamError as error:
            raise ModelListError(str(error)) from None
        except RemoteProtocolError as error:
            raise ModelListError(error.message) from None
    assert refusal is not None  # every account was refused, and there is one
    raise refusal


async def fetch_all(
    sender: UpstreamSender, settings: Settings, upstreams: Sequence[UpstreamSettings], timeout_s: float
) -> dict[str, tuple[ModelInfo, ...] | str]:
    """Fetch the models of several upstreams at the same time. Return the reason for one that has no list in time."""
    found: dict[str, tuple[ModelInfo, ...] | str] = {
        upstream.name: f"no response within {timeout_s:g} s" for upstream in upstreams
    }

    async def fetch(upstream: UpstreamSettings) -> None:
        try:
            found[upstream.name] = await fetch_models(sender, upstream, settings.accounts_of(upstream))
        except ModelListError as error:
            found[upstream.name] = str(error)

    with anyio.move_on_after(timeout_s):
        async with anyio.create_task_group() as tasks:
            for upstream in upstreams:
                tasks.start_soon(fetch, upstream)
    return found


async def _fetch_with(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    account: AccountSettings,
    specs: Mapping[str, UpstreamSpec],
) -> tuple[ModelInfo, ...]:
    spec = specs[upstream.protocol]
    model_list = spec.model_list
    assert model_list is not None  # see can_list()
    url = upstream.base_url_for(spec.name, specs) + model_list.path
    query = dict(model_list.query)
    found: dict[str, ModelInfo] = {}
    max_bytes = MAX_BYTES
    for _ in range(MAX_PAGES):
        page_url = f"{url}?{urlencode(query)}" if query else url
        status, body = await account_get(sender, upstream, spec, account, page_url, max_bytes)
        if status != 200:
            refused = AccountRefused if status in _ACCOUNT_STATUSES else ModelListError
            raise refused(f"it returned status {status}")
        page, known = await off_loop(len(body), read_models, body, model_list.name_prefix), len(found)
        max_bytes -= len(body)
        for model in page.models:
            found.setdefault(model.id, model)
        # A server without pages sends the first one again and again.
        if page.next is None or len(found) == known or len(found) >= MAX_MODELS:
            break
        query[model_list.cursor] = page.next
    return tuple(found.values())[:MAX_MODELS]
