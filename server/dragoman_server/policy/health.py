"""The state of one account, and how the outcome of an attempt changes it.

It is a value with pure transitions, so that every account store (memory, a file, a server that many gateways share)
does the same. Time and a random number are arguments. A later report never shortens a cooldown, because two requests
that fail at the same time are reported in any order.

`proxying/account_pool.py` reports outcomes to the account store. With a single account to choose from it reports none,
because a cooldown would only turn requests away. Which errors lead to a cooldown: the `[[rules]]` of the upstream, then
ERROR_RULES in `error_actions`. No setting changes Backoff.
"""

from enum import Enum

import msgspec

from dragoman_server.policy.error_actions import ErrorAction


class Backoff(msgspec.Struct, frozen=True):
    """How long accounts cool down. Times are seconds.

    Attributes:
        rate_limit_s: After a rate limit without a time. Doubles with each consecutive cooldown, as failure_s.
        failure_s: After too many failures.
        max_s: The longest after a rate limit.
        max_failure_s: The longest after failures. When a host is up again, all of its accounts may be cooling down.
        max_failures: This many within window_s are too many.
        window_s: See max_failures.
        jitter: A cooldown is longer by up to this share, so that accounts and gateways do not all start again at the
            same time.
    """

    rate_limit_s: float = 15.0
    failure_s: float = 5.0
    max_s: float = 300.0
    max_failure_s: float = 30.0
    max_failures: int = 3
    window_s: float = 30.0
    jitter: float = 0.1


class AccountState(Enum):
    """What an account's health means for the next request."""

    READY = "ready"
    COOLING = "cooling"
    DISABLED = "disabled"


class Health(msgspec.Struct, frozen=True):
    """One account's state. Times are seconds since the epoch, because gateways share them.

    Attributes:
        cooldown_until: The account is not used until then.
        cause: The cause of the cooldown, for the operator.
        disabled: Why it is disabled until an operator resets it, None if it is not.
        failures: The times of recent temporary failures, oldest first.
        consecutive_cooldowns: Without a success between them.
        last_used: When it was last chosen.
        remaining: The share of its rate limit that is left, 0 to 1, None if unknown.
        failing: If it cools down, that is after failures, not after a rate limit.
    """

    cooldown_until: float = 0.0
    cause: str = ""
    disabled: str | None = None
    failures: tuple[float, ...] = ()
    consecutive_cooldowns: int = 0
    last_used: float = 0.0
    remaining: float | None = None
    failing: bool = False

    def usable(self, now: float) -> bool:
        """True if a request may be sent with it."""
        return self.disabled is None and self.cooldown_until <= now

    def state(self, now: float) -> AccountState:
        """Return the state at a time."""
        if self.disabled is not None:
            return AccountState.DISABLED
        return AccountState.COOLING if self.cooldown_until > now else AccountState.READY

    def after_failure(
        self,
        action: ErrorAction,
        cause: str,
        now: float,
        *,
        retry_after: float | None = None,
        random: float = 0.0,
        backoff: Backoff = Backoff(),
    ) -> "Health":
        """Return the state after a failed attempt.

        action: from classify(). cause: for the operator. retry_after: see retry_after().
        random: a random number from 0 to 1.
        """
        if action is ErrorAction.DISABLE:
            return self.after_disabling(cause)
        first_s, max_s, failures = backoff.rate_limit_s, backoff.max_s, self.failures
        if action is ErrorAction.RETRY_LATER:
            first_s, max_s, failures = backoff.failure_s, backoff.max_failure_s, ()
            recent = (*(at for at in self.failures if at > now - backoff.window_s), now)
            if retry_after is None and len(recent) < backoff.max_failures:
                return msgspec.structs.replace(self, failures=recent)
        elif action is not ErrorAction.COOL_DOWN:
            return self
        seconds = retry_after
        if seconds is None:
            seconds = min(first_s * 2.0 ** min(self.consecutive_cooldowns, 32), max_s)
        until = now + seconds * (1 + backoff.jitter * random)
        if until <= self.cooldown_until:
            return msgspec.structs.replace(self, failures=failures) if failures != self.failures else self
        # Requests that were under way when the first one failed do not count as further cooldowns.
        another = 0 if self.cooldown_until > now else 1
        return msgspec.structs.replace(
            self,
            cooldown_until=until,
            cause=cause,
            failures=failures,
            consecutive_cooldowns=self.consecutive_cooldowns + another,
            failing=action is ErrorAction.RETRY_LATER,
        )

    def after_success(self, *, remaining: float | None = None) -> "Health":
        """Return the state after a complete response. remaining: as in the class, stored in whole percents."""
        # Otherwise every response would be a change, which all gateways get.
        remaining = None if remaining is None else round(remaining, 2)
        if not self.consecutive_cooldowns and not self.failures and remaining == self.remaining:
            return self
        return msgspec.structs.replace(self, consecutive_cooldowns=0, failures=(), remaining=remaining)

    def after_disabling(self, cause: str) -> "Health":
        """Return the state after an operator, or a vendor's refusal, has taken the account out of use."""
        return msgspec.structs.replace(self, disabled=cause)

    def after_reset(self) -> "Health":
        """Return the state after the operator has reset the account."""
        return Health(last_used=self.last_used)


# The state of an account that was never used.
INITIAL_HEALTH = Health()
