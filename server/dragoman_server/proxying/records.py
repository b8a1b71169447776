"""Put what became of a request into its record, for the log and the metrics."""

from dragoman import ErrorKind, LossCode, Outcome, ResponseMachine, WireError
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.attempt import Attempt
from dragoman_server.proxying.plan import Plan, log_losses
from dragoman_server.proxying.upstream_errors import AttemptFailure
from dragoman_server.relayed.body import RelayedBody

# Ends the response of a client that has left. It is no failure of the upstream.
CLIENT_LEFT = WireError(ErrorKind.TRUNCATED, "the client has left")


def note_failure(record: RequestRecord, attempt: Attempt, failure: AttemptFailure, seconds: float) -> None:
    """Put a failed attempt into the record. seconds: that it took."""
    account, target = attempt.account.id, attempt.plan.destination.target
    record.note_failure(account, target, attempt.status, failure.error.kind.value, failure.cause, seconds)


def record_end(
    record: RequestRecord,
    plan: Plan,
    machine: ResponseMachine | None,
    first_content_s: float | None,
) -> None:
    """Put the end of a request into its record. machine, first_content_s: of the response that the client got."""
    if plan.losses.entries:
        record.losses = [f"{loss.code.value} {loss.path}" for loss in plan.losses]
    if machine is not None:
        first_byte_s = record.first_byte_s
        if first_content_s is not None and first_byte_s is not None and first_content_s > first_byte_s:
            record.first_content_s = first_content_s
        if machine.losses.entries:
            record.losses += [f"{loss.code.value} answer:{loss.path}" for loss in machine.losses]
            log_losses(record.id, "response", machine.losses)
            if any(loss.code is LossCode.ESTIMATED for loss in machine.losses):
                record.estimated = True
        usage = machine.usage
        record.input_tokens, record.output_tokens = usage.input, usage.output
        record.cached_tokens, record.cache_write_tokens = usage.cached, usage.cache_write
        record.cache_write_1h_tokens, record.reasoning_tokens = usage.cache_write_1h, usage.reasoning
        if usage.input and usage.cached is not None:
            record.cached_share = round(min(usage.cached / usage.input, 1.0), 3)
        # In this order, because the check of a class is slow.
        if plan.takes_any_bytes and isinstance(machine, RelayedBody):
            record.units = machine.units or None
        if machine.error is not None and machine.error is not CLIENT_LEFT and record.error is None:
            record.error, record.error_kind = machine.error.message, machine.error.kind.value
        if record.outcome == "client_left" and machine.outcome is Outcome.COMPLETED:
            record.upstream_completed = True
    if record.outcome == "open":
        record.outcome = "completed" if record.error is None else "failed"
