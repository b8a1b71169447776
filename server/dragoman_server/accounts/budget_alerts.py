"""Tell the operator when a budget is nearly spent: a line in the log, and a request to `server.budget_webhook`.

That happens once for each threshold and period, over all processes that share the account store: whoever is the first
to count a claim there sends, and counts a mark afterwards. If it is killed in between, the claim ends, and the process
that counts the next request sends. No request waits for it.
"""

import logging
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError, Counter, apply_in_time
from dragoman_server.accounts.stores.operations import Add
from dragoman_server.hosts import UpstreamCall
from dragoman_server.platform.clock import utc_text
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.settings import LimitHolder
from dragoman_server.settings.clients import amount_text
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender
from dragoman_server.upstream.transport import UpstreamTimeouts

LOG = logging.getLogger("dragoman.budgets")

# Percent of a budget.
THRESHOLDS: Final = (80, 100)

# Seconds for one try, and before each further one.
TRY_S = 10.0
PAUSES_S = (1.0, 10.0, 60.0)
# How long nobody else sends what a process has begun to send: all tries, and a margin.
CLAIM_S = sum(PAUSES_S) + (1 + len(PAUSES_S)) * TRY_S + 10.0
# Messages that are being sent. If the webhook does not respond, there is no use in more.
_MAX_SENDING = 100
_MAX_BYTES = 64 * 1024


class BudgetUse(msgspec.Struct, frozen=True):
    """The spent part of a budget, without reservations.

    Attributes:
        holder: With a budget.
        counter: Of the period, and when that ends.
    """

    holder: LimitHolder
    counter: Counter
    spent: float

    @property
    def percent(self) -> float:
        budget = self.holder.budget or 0.0
        return 100.0 * self.spent / budget if budget else 100.0


class BudgetAlerts(BackgroundTaskGroup):
    """Sends an alert for each threshold that a budget has reached."""

    def __init__(self, store: AccountStore, sender: UpstreamSender) -> None:
        self._store = store
        self._sender = sender
        # By holder, the mark of the highest threshold that is done with.
        self._done: dict[str, str] = {}
        self._sending = 0

    def note(self, use: BudgetUse, webhook: Secret | None, now: float) -> None:
        """Send the due alerts in the background. webhook: None to write to the log only."""
        reached = [threshold for threshold in THRESHOLDS if use.percent >= threshold]
        if not reached or self._tasks is None:
            return
        # With another budget the same period has other thresholds.
        marks = [f"alert:{use.counter[0]}:{use.holder.budget}:{threshold}" for threshold in reached]
        if self._done.get(use.holder.label) != marks[-1]:
            self._done[use.holder.label] = marks[-1]
            self._tasks.start_soon(self._alert, use, marks, reached[-1], webhook, now)

    async def _alert(
        self, use: BudgetUse, marks: list[str], threshold: int, webhook: Secret | None, now: float
    ) -> None:
        """Send the highest threshold if no process has done so. The lower ones are then done with."""
        expires = use.counter[1]
        claim = f"{marks[-1]}:sending", now + CLAIM_S
        try:
            for mark in marks[:-1]:
                await apply_in_time(self._store, Add([(mark, expires)], 1.0, now, 0.0))
            both = Add([claim, (marks[-1], expires)], 1.0, now, 0.0)
            claimed, sent = await apply_in_time(self._store, both)
        except AccountStoreError as error:
            self._done.pop(use.holder.label, None)  # the next request tries again
            LOG.warning("an alert for the budget of the %s is not sent: %s", use.holder.label, error)
            return
        if claimed or sent:
            if not sent:
                self._done.pop(use.holder.label, None)  # the next request looks if it was sent
            return
        message = _message(use, threshold, now)
        LOG.warning("%s", message["text"])
        if webhook is not None:
            await self._send_one(webhook, msgspec.json.encode(message))
        with suppress(AccountStoreError):
            await apply_in_time(self._store, Add([(marks[-1], expires)], 1.0, now, 0.0))

    async def _send_one(self, webhook: Secret, body: bytes) -> None:
        """Send a message unless too many are being sent."""
        if self._sending >= _MAX_SENDING:
            LOG.error("the webhook of budgets gets no message: %d are being sent", self._sending)
            return
        self._sending += 1
        try:
            await self._send(webhook, body)
        finally:
            self._sending -= 1

    async def _send(self, webhook: Secret, body: bytes) -> None:
        reason = ""
        for pause in (0.0, *PAUSES_S):
            await anyio.sleep(pause)
            try:
                with anyio.fail_after(TRY_S):
                    status = await self._post(webhook, body)
                if 200 <= status < 300:
                    return
                reason = f"it returned status {status}"
            except UpstreamError as error:
                reason = str(error)
            except TimeoutError:
                reason = f"no response within {TRY_S:g} s"
            except Exception:  # a bug: it must not end the gateway, whose group this task is in
                LOG.exception("the webhook of budgets cannot be called")
                return
        LOG.error("the webhook of budgets got no message after %d tries: %s", 1 + len(PAUSES_S), reason)

    async def _post(self, webhook: Secret, body: bytes) -> int:
        headers = [("content-type", "application/json")]
        call = UpstreamCall("POST", webhook.reveal(), headers, body)
        async with self._sender.open(call, timeouts=UpstreamTimeouts(*[TRY_S] * 4)) as response:
            await response.read_all(_MAX_BYTES)  # so that the connection can be used again
            return response.status


def _message(use: BudgetUse, threshold: int, now: float) -> dict[str, object]:
    """Return the body for the webhook. `text` is what chat services show."""
    holder, ends = use.holder, use.counter[1]
    until = None if ends is None else utc_text(ends)
    again = "" if until is None else f"; it starts again at {until}"
    text = (
        f"the {holder.label} has spent {use.percent:.0f} % of its budget: {amount_text(use.spent)} of "
        f"{amount_text(holder.budget or 0)} US dollars{again}"
    )
    return {
        "text": text,
        "event": "budget_used",
        "holder": holder.kind,
        "name": holder.name,
        "threshold_percent": threshold,
        "spent_usd": round(use.spent, 6),
        "budget_usd": holder.budget,
        "budget_period": holder.budget_period,
        "ends": until,
        "time": utc_text(now),
    }
