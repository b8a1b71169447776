"""Show both wires of a request while it runs, in the feed of events: what the client and upstreams get and send.

Secrets are removed, and texts where recordings are without them, piece by piece: a secret that a model writes in
several pieces is found in a recording only.
"""

from collections.abc import Callable, Mapping, Sequence

from dragoman.jsontext import JSON
from dragoman_server.hosts import UpstreamCall
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.client_request import SCOPE_SENDERS, ClientRequest
from dragoman_server.proxying.destinations import Destination
from dragoman_server.proxying.plan import Plan
from dragoman_server.recordings.call_listener import ListenedSender, SenderWithListener
from dragoman_server.recordings.redaction import redact_headers, redact_texts
from dragoman_server.settings import Settings
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender

# Bytes of one text, and of all texts of one request. What follows is left out: recordings have all.
MAX_TEXT_BYTES = 16 * 1024
MAX_REQUEST_BYTES = 256 * 1024


class LiveWire:
    """Publishes both wires of one request.

    Args:
        publish: takes the data of one event, and removes the secrets of the configuration.
    """

    def __init__(self, publish: Callable[[Mapping[str, JSON]], None], settings: Settings) -> None:
        self._publish = publish
        self._with_texts = settings.server.record_texts
        self._left = MAX_REQUEST_BYTES
        self._attempts = 0

    def listen_to(self, request: ClientRequest) -> None:
        """Publish what this request sends and gets from now on."""
        before, count = request.scope.get(SCOPE_SENDERS), request.response.watch

        def listening(plan: Plan, record: RequestRecord) -> ListenedSender:
            if plan.planner is not None:
                self.text("client", "request", plan.planner.body)
            listened = None if before is None else before(plan, record)

            def sender_for(to: Destination, account: str, sender: UpstreamSender) -> UpstreamSender:
                sender = sender if listened is None else listened(to, account, sender)
                return SenderWithListener(self._attempt, sender)

            return sender_for

        def sent(data: bytes) -> None:
            self.text("client", "response", data)
            if count is not None:
                count(data)

        request.scope[SCOPE_SENDERS] = listening
        request.response.watch = sent

    def _attempt(self, call: UpstreamCall) -> "_LiveCall":
        self._attempts += 1
        self.text(
            "upstream",
            "request",
            call.held,
            attempt=self._attempts,
            url=call.url,
            headers=_without_keys(call.headers),
        )
        return _LiveCall(self, self._attempts)

    def text(self, side: str, direction: str, data: bytes, **more: JSON) -> None:
        """Publish bytes of one side: as much as may still be shown."""
        if not self._left:
            return
        shown = data[: min(MAX_TEXT_BYTES, self._left)]
        self._left -= len(shown)
        text = shown if self._with_texts else redact_texts(shown)
        self._publish(
            {
                "side": side,
                "direction": direction,
                **more,
                "text": text.decode("utf-8", "replace"),
                "left_out": len(data) - len(shown) or None,
                "last": None if self._left else True,
            }
        )


def _without_keys(headers: Sequence[tuple[str, str]]) -> JSON:
    """Return headers without those that hold keys."""
    return [[name, value] for name, value in redact_headers(headers, str)]


class _LiveCall:
    """One attempt. See CallListener."""

    def __init__(self, wire: LiveWire, number: int) -> None:
        self._wire = wire
        self._number = number

    def sent(self, data: bytes) -> None:
        """Files are not shown."""

    def head(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self._wire.text(
            "upstream",
            "response",
            b"",
            attempt=self._number,
            status=status,
            headers=_without_keys(headers),
        )

    def received(self, data: bytes) -> None:
        if data:
            self._wire.text("upstream", "response", data, attempt=self._number)

    def failed(self, error: UpstreamError) -> None:
        self._wire.text("upstream", "response", b"", attempt=self._number, error=str(error))
