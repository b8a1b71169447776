"""The money that accounts have left, for the selection most_remaining.

Strategy: no upstream tells it in its answers, but some have an address for it, and a table says where and how. They are
asked in the background, for all accounts of the upstream when a request goes there; the request itself never waits, and
of an account that has not told everything counts as left. Accounts are compared by their shares of the largest amount.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio

from dragoman import UPSTREAMS, RemoteProtocolError
from dragoman.codec import UpstreamSpec
from dragoman.jsontext import JSON, decode
from dragoman_server.accounts.policy import Selection
from dragoman_server.capabilities.providers import provider_name
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.upstream.account_get import account_get
from dragoman_server.upstream.background import BackgroundTaskGroup
from dragoman_server.upstream.client import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender

LOG = logging.getLogger("dragoman.accounts")

# Money goes more slowly than rate limits.
REFRESH_INTERVAL_S = 300.0
# For all accounts of an upstream.
REFRESH_S = 30.0
# Answers have some hundred bytes.
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _BalanceEndpoint:
    """path: at the host. read: the amount that an answer tells, None for no limit; it may fail for other bodies."""

    path: str
    read: Callable[[JSON], JSON]


def _deepseek(body: JSON) -> JSON:
    """`balance_infos: [{currency, total_balance: "110.00"}]`: dollars, where an account has several currencies."""
    balances = body["balance_infos"]
    return next((each for each in balances if each["currency"] == "USD"), balances[0])["total_balance"]


def _openrouter(body: JSON) -> JSON:
    """`data: {limit, limit_remaining}` of the key, null for a key without a limit."""
    return body["data"]["limit_remaining"]


# By provider. api-docs.deepseek.com/api/get-user-balance; openrouter.ai/docs/api/api-reference, "Get current API key".
_QUESTIONS: Mapping[str, _BalanceEndpoint] = {
    "deepseek": _BalanceEndpoint("/user/balance", _deepseek),
    "openrouter": _BalanceEndpoint("/api/v1/key", _openrouter),
}


class Balances(BackgroundTaskGroup):
    """shares: by account, what it has left as a share of the upstream's largest amount, 0 to 1.

    door, specs: see Catalog.
    """

    def __init__(
        self,
        settings: Settings,
        sender: Callable[[str], UpstreamSender],
        specs: Mapping[str, UpstreamSpec] = UPSTREAMS,
    ) -> None:
        self.shares: dict[str, float] = {}
        self._settings = settings
        self._door = sender
        self._specs = specs
        self._due: dict[str, float] = {}

    def refresh(self, upstream: UpstreamSettings) -> None:
        """A request goes to this upstream: have it asked, if what is known is old and somebody uses it."""
        if self._tasks is None or upstream.selection != Selection.MOST_REMAINING.value:
            return
        question = _QUESTIONS.get(provider_name(upstream.base_url) or "")
        now = anyio.current_time()
        if question is None or len(self._settings.accounts_of(upstream)) == 1:
            return
        if now < self._due.get(upstream.name, -math.inf):
            return
        self._due[upstream.name] = now + REFRESH_INTERVAL_S
        self._tasks.start_soon(self._ask, upstream, question, name=f"balances of {upstream.name}")

    async def _ask(self, upstream: UpstreamSettings, question: _BalanceEndpoint) -> None:
        amounts: dict[str, float | None] = {}
        parts = urlsplit(upstream.base_url)
        url = f"{parts.scheme}://{parts.netloc}{question.path}"
        with anyio.move_on_after(REFRESH_S):
            for account in self._settings.accounts_of(upstream):
                try:
                    sender, protocol = self._door(upstream.name), self._specs[upstream.protocol]
                    status, body = await account_get(sender, upstream, protocol, account, url, _MOST_BYTES)
                    amounts[account.id] = _amount(question, body) if status == 200 else None
                    reason = f"it answered with status {status}"
                except UpstreamError as error:
                    amounts[account.id], status, reason = None, 0, str(error)
                except Exception:  # a bug: it must not end the gateway, whose group this task is in
                    LOG.exception("the balance of account %s cannot be read", account.id)
                    return
                if status != 200:
                    LOG.info("the balance of account %s is not known: %s", account.id, reason)
        most = max((amount for amount in amounts.values() if amount is not None), default=0.0)
        for id, amount in amounts.items():
            if amount is None:
                self.shares.pop(id, None)
            else:
                self.shares[id] = amount / most if most > 0 else 0.0


def _amount(question: _BalanceEndpoint, body: bytes) -> float | None:
    """The amount that an answer tells, None where it tells none."""
    try:
        amount = float(question.read(decode(body)))
    except (RemoteProtocolError, LookupError, TypeError, ValueError):
        return None
    return max(amount, 0.0) if math.isfinite(amount) else None
