"""Asking an upstream for its models: one bounded question, page after page.

Strategy: the list is asked for where the upstream's own SDK would ask, with the key of an account. An answer that is
about the account alone (a wrong key, a limit) lets the next one ask. Bytes, pages and models have limits, and so has
the time, which the caller sets.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import anyio

from dragoman import UPSTREAMS, RemoteProtocolError
from dragoman.codec import UpstreamSpec
from dragoman_server.models.info import ModelInfo, ModelPage, read_models
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.upstream.account_get import account_get
from dragoman_server.upstream.client import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender

# OpenRouter's list has some 400 models and 2 MB. More than this is no list of models, or a trap.
MAX_BYTES = 16 * 2**20
MAX_PAGES = 20
MAX_MODELS = 5000
# Of an upstream's accounts, so many are tried for one list.
MAX_ACCOUNTS = 3

# Answers that are about the account: another one may be told more.
_ABOUT_ACCOUNT = frozenset({401, 402, 403, 429})


class ModelListError(Exception):
    """There is no list. `str()` of it is for the log: it has neither keys nor what the upstream wrote."""


class _Refused(ModelListError):
    """The account was refused."""


def can_list(upstream: UpstreamSettings, specs: Mapping[str, UpstreamSpec] = UPSTREAMS) -> bool:
    """Whether this upstream is to be asked, and it is known how. specs: by name, see Gateway."""
    spec = specs.get(upstream.protocol)
    return upstream.model_list and spec is not None and spec.model_list is not None


async def fetch_models(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    accounts: Sequence[AccountSettings],
    specs: Mapping[str, UpstreamSpec] = UPSTREAMS,
) -> tuple[ModelInfo, ...]:
    """All models that the upstream lists, each once. It must be one of can_list(). Raises ModelListError."""
    if not accounts:
        raise ModelListError("no account can be used")
    refusal = None
    for account in accounts[:MAX_ACCOUNTS]:
        try:
            return await _fetch_with(sender, upstream, account, specs)
        except _Refused as error:
            refusal = error
        except UpstreamError as error:
            raise ModelListError(str(error)) from None
        except RemoteProtocolError as error:
            raise ModelListError(error.message) from None
    assert refusal is not None  # every account was refused, and there is one
    raise refusal


async def fetch_all(
    sender: UpstreamSender, settings: Settings, upstreams: Sequence[UpstreamSettings], within_s: float
) -> dict[str, tuple[ModelInfo, ...] | str]:
    """The models of several upstreams, asked at the same time; of one that gives no list in time, the reason."""
    found: dict[str, tuple[ModelInfo, ...] | str] = {
        upstream.name: f"no answer in {within_s:g} s" for upstream in upstreams
    }

    async def fetch(upstream: UpstreamSettings) -> None:
        try:
            found[upstream.name] = await fetch_models(sender, upstream, settings.accounts_of(upstream))
        except ModelListError as error:
            found[upstream.name] = str(error)

    with anyio.move_on_after(within_s):
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
    places = spec.model_list
    assert places is not None  # see can_list()
    url = upstream.base_url_for(spec.name, specs) + places.path
    query = dict(places.query)
    found: dict[str, ModelInfo] = {}
    room = MAX_BYTES
    for _ in range(MAX_PAGES):
        page, size = await _page(
            sender, upstream, spec, account, f"{url}?{urlencode(query)}" if query else url, room
        )
        room -= size
        known = len(found)
        for model in page.models:
            found.setdefault(model.id, model)
        # A server that knows no pages sends the first one again and again.
        if page.next is None or len(found) == known or len(found) >= MAX_MODELS:
            break
        query[places.cursor] = page.next
    return tuple(found.values())[:MAX_MODELS]


async def _page(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    spec: UpstreamSpec,
    account: AccountSettings,
    url: str,
    room: int,
) -> tuple[ModelPage, int]:
    """Return a page and the number of its bytes."""
    status, body = await account_get(sender, upstream, spec, account, url, room)
    if status in _ABOUT_ACCOUNT:
        raise _Refused(f"it answered with status {status}")
    if status != 200:
        raise ModelListError(f"it answered with status {status}")
    return read_models(body), len(body)
