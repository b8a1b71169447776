"""Read the money that accounts have left, for the selection most_remaining.

No upstream sends it with its responses, but some have an endpoint for it, which a table describes. When a request goes
to such an upstream, the balances of all its accounts are read in the background; the request never waits. An account
without a known balance counts as full. Accounts are compared by their shares of the largest balance.
"""

import logging
import math
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import anyio
import msgspec

from dragoman import UPSTREAMS, RemoteProtocolError
from dragoman.codec import UpstreamSpec
from dragoman.jsontext import JSON, decode
from dragoman_server.capabilities.providers import provider_name
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.policy.attempts import Selection
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.upstream.account_request import account_get
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender

LOG = logging.getLogger("dragoman.accounts")

# Only this one asks how much is left.
_SELECTION = Selection.MOST_REMAINING.value
# Money is used up more slowly than rate limits.
REFRESH_INTERVAL_S = 300.0
# For all accounts of an upstream.
REFRESH_S = 30.0
# Responses have some hundred bytes.
_MAX_BYTES = 64 * 1024


class _BalanceEndpoint(msgspec.Struct, frozen=True):
    """Where a provider reports a balance.

    Attributes:
        path: The path at the host.
        read: Returns the amount in a response, None for no limit; it may raise for other bodies.
    """

    path: str
    read: Callable[[JSON], JSON]


def _deepseek(body: JSON) -> JSON:
    """Read `balance_infos: [{currency, total_balance: "110.00"}]`: dollars, if an account has several currencies."""
    balances = body["balance_infos"]
    return next((each for each in balances if each["currency"] == "USD"), balances[0])["total_balance"]


# By provider. api-docs.deepseek.com/api/get-user-balance; openrouter.ai/docs/api/api-reference, "Get current API key".
_ENDPOINTS: Mapping[str, _BalanceEndpoint] = {
    "deepseek": _BalanceEndpoint("/user/balance", _deepseek),
    # `data: {limit, limit_remaining}` of the key, null for a key without a limit
    "openrouter": _BalanceEndpoint("/api/v1/key", lambda body: body["data"]["limit_remaining"]),
}


class Balances(BackgroundTaskGroup):
    """The balances of all accounts.

    Args:
        sender_for, specs: see ModelCatalog.

    Attributes:
        shares: By account id, its balance as a share of the upstream's largest one, 0 to 1.
    """

    def __init__(
        self,
        settings: Settings,
        sender_for: Callable[[str], UpstreamSender],
        specs: Mapping[str, UpstreamSpec] = UPSTREAMS,
    ) -> None:
        self.shares: dict[str, float] = {}
        self._settings = settings
        self._sender_for = sender_for
        self._specs = specs
        self._due: dict[str, float] = {}

    def take_over(self, previous: "Balances") -> None:
        """Use the balances known before a reload until they are read again."""
        self.shares = dict(previous.shares)

    def refresh(self, upstream: UpstreamSettings) -> None:
        """Read the balances of an upstream in the background if they are used, and old. Never waits."""
        if self._tasks is None or upstream.selection != _SELECTION:
            return
        now = anyio.current_time()
        if not reports_balance(upstream) or len(self._settings.accounts_of(upstream)) == 1:
            return
        if now < self._due.get(upstream.name, -math.inf):
            return
        self._due[upstream.name] = now + REFRESH_INTERVAL_S
        self._tasks.start_soon(self._fetch, upstream, name=f"balances of {upstream.name}")

    async def _fetch(self, upstream: UpstreamSettings) -> None:
        amounts: dict[str, float | None] = {}
        with anyio.move_on_after(REFRESH_S):
            for account in self._settings.accounts_of(upstream):
                try:
                    sender, protocol = self._sender_for(upstream.name), self._specs[upstream.protocol]
                    status, amount = await fetch_balance(sender, upstream, protocol, account)
                    amounts[account.id] = amount
                    reason = f"it returned status {status}"
                except UpstreamError as error:
                    amounts[account.id], status, reason = None, 0, str(error)
                except Exception:  # a bug: it must not end the gateway, whose group this task is in
                    LOG.exception("the balance of account %s cannot be read", account.id)
                    return
                if status != 200:
                    LOG.info("the balance of account %s is unknown: %s", account.id, reason)
        largest = max((amount for amount in amounts.values() if amount is not None), default=0.0)
        for id, amount in amounts.items():
            if amount is None:
                self.shares.pop(id, None)
            else:
                self.shares[id] = amount / largest if largest > 0 else 0.0


def reports_balance(upstream: UpstreamSettings) -> bool:
    """True if the upstream has an endpoint for the money that an account has left."""
    return provider_name(upstream.base_url) in _ENDPOINTS


async def fetch_balance(
    sender: UpstreamSender, upstream: UpstreamSettings, protocol: UpstreamSpec, account: AccountSettings
) -> tuple[int, float | None]:
    """Return the status of the response, and the money that the account has left: None if unknown or unlimited.

    Needs reports_balance(). protocol: the upstream's preferred one. Raises UpstreamError.
    """
    endpoint = _ENDPOINTS[provider_name(upstream.base_url) or ""]
    parts = urlsplit(upstream.base_url)
    url = f"{parts.scheme}://{parts.netloc}{endpoint.path}"
    status, body = await account_get(sender, upstream, protocol, account, url, _MAX_BYTES)
    return status, _amount(endpoint, body) if status == 200 else None


def _amount(endpoint: _BalanceEndpoint, body: bytes) -> float | None:
    """Return the amount in a response, None if there is none."""
    try:
        amount = float(endpoint.read(decode(body)))
    except (RemoteProtocolError, LookupError, TypeError, ValueError):
        return None
    return max(amount, 0.0) if math.isfinite(amount) else None
