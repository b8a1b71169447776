"""Fit the betas of a request to what its upstream has.

A list of betas is a header. Each API of a cloud knows some by name (`capabilities.cloud_apis`); one that it does not
have is left out, with an entry in the ledger, and so is one that the upstream has refused by its name. What the
configuration sets stays.
"""

from collections.abc import Collection, Iterator

from dragoman import Ledger, WireError
from dragoman_server.capabilities.cloud_apis import CloudApi
from dragoman_server.settings import UpstreamSettings
from dragoman_server.wire.headers import HeaderList


def fit_betas(
    headers: HeaderList,
    lists: Collection[str],
    upstream: UpstreamSettings,
    api: CloudApi | None,
    left_out: Collection[str],
    losses: Ledger,
) -> HeaderList:
    """Return the headers with the betas that are sent. The others are recorded.

    lists: UpstreamSpec.list_headers. left_out: names that the upstream has refused.
    """
    fitted = []
    for name, value in headers:
        if name not in lists or not value:
            fitted.append((name, value))
            continue
        configured = set(_values(upstream.headers[name].reveal())) if name in upstream.headers else ()
        kept: dict[str, None] = {}
        for beta in _values(value):
            sent = beta if api is None or beta in configured else api.beta(beta)
            if sent is None or sent in left_out:
                losses.dropped(f"/{name}/{beta}", "the upstream does not have this beta")
            else:
                kept[sent] = None
        if kept:
            fitted.append((name, ",".join(kept)))
    return fitted


def refused_beta(error: WireError, headers: HeaderList, lists: Collection[str]) -> str | None:
    """Return the beta that an upstream has refused by its name, None if it names none."""
    text = error.message[:_MAX_TEXT] if error.status == 400 else ""
    return next(
        (beta for name, value in headers if name in lists for beta in _values(value) if beta in text), None
    )


# Characters of an error's text that are searched.
_MAX_TEXT = 2000


def _values(text: str) -> Iterator[str]:
    return filter(None, map(str.strip, text.split(",")))
