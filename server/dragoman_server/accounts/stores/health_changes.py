"""The methods of account stores that change the health of an account, for the stores that compute its transitions."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from dragoman_server.accounts.error_actions import ErrorAction
from dragoman_server.accounts.health import Backoff, Health
from dragoman_server.accounts.stores.rate_limits import round_share

__all__ = ["HealthChanges"]


class HealthChanges(ABC):
    """Base of stores. See AccountStore."""

    @abstractmethod
    async def _change(self, account: str, change: Callable[[Health], Health]) -> None:
        """Replace the health of an account by what `change` returns for it, unless that is the same object."""

    async def failed(
        self,
        account: str,
        action: ErrorAction,
        cause: str,
        now: float,
        *,
        retry_after: float | None,
        random: float,
        backoff: Backoff,
    ) -> None:
        def change(health: Health) -> Health:
            return health.after_failure(
                action, cause, now, retry_after=retry_after, random=random, backoff=backoff
            )

        await self._change(account, change)

    async def succeeded(self, account: str, *, remaining: float | None) -> None:
        await self._change(account, lambda health: health.after_success(remaining=round_share(remaining)))

    async def disable(self, account: str, cause: str) -> None:
        await self._change(account, lambda health: health.after_failure(ErrorAction.DISABLE, cause, 0.0))

    async def reset(self, account: str) -> None:
        await self._change(account, Health.after_reset)
