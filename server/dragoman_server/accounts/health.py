"""What is known of one account, and what an outcome changes about it.

Strategy: a value and pure transitions, so that every store of accounts (memory, a file, a server that many gateways
share) does the same. Time and chance come in as arguments. A cool-down is never made shorter by a later report: two
requests that fail at once come back in any order.
"""

from __future__ import annotations

import msgspec

from dragoman_server.accounts.error_actions import ErrorAction


class Backoff(msgspec.Struct, frozen=True):
    """How long accounts rest. Seconds.

    limit_s: after a rate limit without a time. trouble_s: after too many troubles. Both double with each strike, up
    to most_s.
    troubles, window_s: so many within this time are too many.
    jitter: a rest is longer by up to this share, so that accounts and gateways do not come back all at once.
    """

    rate_limit_s: float = 15.0
    failure_s: float = 5.0
    max_s: float = 300.0
    max_failures: int = 3
    window_s: float = 30.0
    jitter: float = 0.1

    def delay(self, seconds: float, consecutive_cooldowns: int) -> float:
        """How long a rest is that would be `seconds` without strikes."""
        return min(seconds * 2.0 ** min(consecutive_cooldowns, 32), self.max_s)


class Health(msgspec.Struct, frozen=True):
    """One account's state. Times are seconds of the wall clock: gateways share them.

    cools_until: it rests until then. cause: why, in words for the operator.
    disabled: why it is out of use until somebody resets it, None while it is in use.
    troubles: when it had trouble lately, oldest first.
    strikes: rests in a row without a success between them.
    used: when it was last chosen.
    remaining: the share of its rate limit that is left, 0 to 1, None when unknown.
    """

    cooldown_until: float = 0.0
    cause: str = ""
    disabled: str | None = None
    failures: tuple[float, ...] = ()
    consecutive_cooldowns: int = 0
    last_used: float = 0.0
    remaining: float | None = None

    def usable(self, now: float) -> bool:
        """Whether a request may be sent with it."""
        return self.disabled is None and self.cooldown_until <= now

    def after_failure(
        self,
        action: ErrorAction,
        cause: str,
        now: float,
        *,
        retry_after: float | None = None,
        random: float = 0.0,
        backoff: Backoff = Backoff(),
    ) -> Health:
        """The account after an attempt that ended with `verdict`.

        after: seconds that the upstream asked for. draw: from 0 to 1, by chance.
        """
        if action is ErrorAction.DISABLE:
            return msgspec.structs.replace(self, disabled=cause)
        if action is ErrorAction.COOL_DOWN:
            seconds = (
                backoff.delay(backoff.rate_limit_s, self.consecutive_cooldowns)
                if retry_after is None
                else retry_after
            )
            return self._cooled(seconds, cause, now, random, backoff)
        if action is ErrorAction.RETRY_LATER:
            lately = (*(at for at in self.failures if at > now - backoff.window_s), now)
            if retry_after is None and len(lately) < backoff.max_failures:
                return msgspec.structs.replace(self, failures=lately)
            seconds = (
                backoff.delay(backoff.failure_s, self.consecutive_cooldowns)
                if retry_after is None
                else retry_after
            )
            return msgspec.structs.replace(self._cooled(seconds, cause, now, random, backoff), failures=())
        return self

    def after_success(self, *, remaining: float | None = None) -> Health:
        """The account after an answer that was whole."""
        if not self.consecutive_cooldowns and not self.failures and remaining == self.remaining:
            return self
        return msgspec.structs.replace(self, consecutive_cooldowns=0, failures=(), remaining=remaining)

    def after_reset(self) -> Health:
        """The account as the operator puts it back into use."""
        return Health(last_used=self.last_used)

    def _cooled(self, seconds: float, cause: str, now: float, random: float, backoff: Backoff) -> Health:
        until = now + seconds * (1 + backoff.jitter * random)
        if until <= self.cooldown_until:
            return self
        # Requests that were on their way when the first one failed are no further strikes.
        resting = self.cooldown_until > now
        consecutive_cooldowns = self.consecutive_cooldowns if resting else self.consecutive_cooldowns + 1
        return msgspec.structs.replace(
            self, cooldown_until=until, cause=cause, consecutive_cooldowns=consecutive_cooldowns
        )
