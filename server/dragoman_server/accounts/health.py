"""What is known of one account, and what an outcome changes about it.

Strategy: a value and pure transitions, so that every store of accounts (memory, a file, a server that many gateways
share) does the same. Time and chance come in as arguments. A cool-down is never made shorter by a later report: two
requests that fail at once come back in any order.
"""

from __future__ import annotations

import msgspec

from dragoman_server.accounts.error_actions import Verdict


class Rest(msgspec.Struct, frozen=True):
    """How long accounts rest. Seconds.

    limit_s: after a rate limit without a time. trouble_s: after too many troubles. Both double with each strike, up
    to most_s.
    troubles, window_s: so many within this time are too many.
    jitter: a rest is longer by up to this share, so that accounts and gateways do not come back all at once.
    """

    limit_s: float = 15.0
    trouble_s: float = 5.0
    most_s: float = 300.0
    troubles: int = 3
    window_s: float = 30.0
    jitter: float = 0.1

    def doubled(self, seconds: float, strikes: int) -> float:
        """How long a rest is that would be `seconds` without strikes."""
        return min(seconds * 2.0 ** min(strikes, 32), self.most_s)


class Health(msgspec.Struct, frozen=True):
    """One account's state. Times are seconds of the wall clock: gateways share them.

    cools_until: it rests until then. cause: why, in words for the operator.
    disabled: why it is out of use until somebody resets it, None while it is in use.
    troubles: when it had trouble lately, oldest first.
    strikes: rests in a row without a success between them.
    used: when it was last chosen.
    remaining: the share of its rate limit that is left, 0 to 1, None when unknown.
    """

    cools_until: float = 0.0
    cause: str = ""
    disabled: str | None = None
    troubles: tuple[float, ...] = ()
    strikes: int = 0
    used: float = 0.0
    remaining: float | None = None

    def usable(self, now: float) -> bool:
        """Whether a request may be sent with it."""
        return self.disabled is None and self.cools_until <= now

    def after_failure(
        self,
        verdict: Verdict,
        cause: str,
        now: float,
        *,
        after: float | None = None,
        draw: float = 0.0,
        rest: Rest = Rest(),
    ) -> Health:
        """The account after an attempt that ended with `verdict`.

        after: seconds that the upstream asked for. draw: from 0 to 1, by chance.
        """
        if verdict is Verdict.DISABLE:
            return msgspec.structs.replace(self, disabled=cause)
        if verdict is Verdict.COOL:
            seconds = rest.doubled(rest.limit_s, self.strikes) if after is None else after
            return self._cooled(seconds, cause, now, draw, rest)
        if verdict is Verdict.TROUBLE:
            lately = (*(at for at in self.troubles if at > now - rest.window_s), now)
            if after is None and len(lately) < rest.troubles:
                return msgspec.structs.replace(self, troubles=lately)
            seconds = rest.doubled(rest.trouble_s, self.strikes) if after is None else after
            return msgspec.structs.replace(self._cooled(seconds, cause, now, draw, rest), troubles=())
        return self

    def after_success(self, *, remaining: float | None = None) -> Health:
        """The account after an answer that was whole."""
        if not self.strikes and not self.troubles and remaining == self.remaining:
            return self
        return msgspec.structs.replace(self, strikes=0, troubles=(), remaining=remaining)

    def after_reset(self) -> Health:
        """The account as the operator puts it back into use."""
        return Health(used=self.used)

    def _cooled(self, seconds: float, cause: str, now: float, draw: float, rest: Rest) -> Health:
        until = now + seconds * (1 + rest.jitter * draw)
        if until <= self.cools_until:
            return self
        # Requests that were on their way when the first one failed are no further strikes.
        resting = self.cools_until > now
        strikes = self.strikes if resting else self.strikes + 1
        return msgspec.structs.replace(self, cools_until=until, cause=cause, strikes=strikes)
