"""Plan a request for an endpoint of `relayed.table`: where it goes, and by which name of its model.

Nothing else of it changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from dragoman import Ledger, RequestRefused, WireError
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.jsontext import splice_model
from dragoman_server.hosts import UpstreamCall
from dragoman_server.proxying.destinations import Destination
from dragoman_server.proxying.plan import Plan, Planner, with_query
from dragoman_server.proxying.upstream_errors import Scrub
from dragoman_server.relayed.body import RelayedBody
from dragoman_server.relayed.table import JSON, RelayedPath
from dragoman_server.settings import SIMULATOR
from dragoman_server.wire.headers import (
    BROWSER_HEADERS,
    STREAM_HEADERS,
    HeaderList,
    media_type,
    upstream_request_headers,
)

# Seconds without a byte that an endpoint may take which is slow.
_SLOW_S = 600.0

# Headers about the body of a response.
_BODY_HEADERS = frozenset({"content-type", "content-length", "content-disposition", "last-modified"})
# A file of somebody else's is no page of the gateway.
_SANDBOX = ("content-security-policy", "sandbox")

_BYTES_PER_TOKEN = 4
_HTML = "text/html"


class RelayedPlan(Plan, frozen=True, kw_only=True):
    """A request that is relayed as it is, but for the name of its model.

    Attributes:
        row: The row of its path.
        method: Of the request.
        wants_stream: Its body requests a stream of events.
    """

    row: RelayedPath
    method: str
    wants_stream: bool
    ends_with_errors: ClassVar[bool] = False

    @property
    def hedge_s(self) -> float:
        return self.destination.settings.hedge_s if self.is_repeatable else 0.0

    @property
    def call(self) -> UpstreamCall:
        content = self.body if self.method == "POST" else self.body or None
        slow = _SLOW_S if self.row.is_slow else 0.0
        return UpstreamCall(self.method, self.url, self.headers, content, least_read_s=slow)

    def invalid_response(self, headers: HeaderList, first: bytes) -> WireError | None:
        if media_type(headers) != _HTML or _HTML in self.row.answers:
            return None
        return Plan.invalid_response(self, headers, first)

    def stream_head(self, status: int | None, headers: Sequence[tuple[str, str]]) -> tuple[int, HeaderList]:
        passed = [(name, value) for name, value in headers if name in _BODY_HEADERS]
        return status or 200, [*passed, *STREAM_HEADERS, *BROWSER_HEADERS, _SANDBOX]

    def response_machine(
        self, headers: Sequence[tuple[str, str]] = (), *, upstream_streams: bool
    ) -> RelayedBody:
        return RelayedBody(media_type(headers), self.row.ends)


@dataclass(repr=False, eq=False, kw_only=True)
class RelayedPlanner(Planner):
    """A client's request for an endpoint of the table. See Planner.

    Attributes:
        row, method: See RelayedPlan.
        path: That was requested, below the gateway's root.
        upstream: The one that `[endpoints]` has for it, used where no model is named.
    """

    row: RelayedPath
    method: str
    path: str
    upstream: str | None = None

    def destinations(self) -> tuple[Destination, ...]:
        if self._head.model:
            chain = Planner.destinations(self)
        else:
            assert self.upstream is not None  # it was looked for before
            settings = self.settings.upstream(self.upstream)
            assert settings is not None  # the loader has checked it
            spec, accounts = self.upstreams[settings.protocol], self.settings.accounts_of(settings)
            chain = (Destination("", "", spec, settings, accounts, rule="[endpoints] has the path"),)
        usable = tuple([found for to in chain if (found := self._in_its_protocol(to)) is not None])
        if not usable:
            name = chain[0].settings.name
            spoken = f"speaks no protocol that has {self.path}: it needs {' or '.join(self.row.protocols)}"
            lacks = f"has no {self.path}" if name == SIMULATOR else spoken
            raise RequestRefused(
                f'the upstream "{name}" {lacks}', status=404, path="/model", code="model_not_found"
            )
        return usable

    def _in_its_protocol(self, to: Destination) -> Destination | None:
        """Return the destination with the protocol that has the path there, None if there is none."""
        found = next((name for name in self.row.protocols if name in to.settings.protocols), None)
        return (
            None
            if found is None or to.settings.name == SIMULATOR
            else msgspec.structs.replace(to, upstream=self.upstreams[found])
        )

    def plan(
        self,
        destination: Destination,
        *,
        fallbacks: tuple[Destination, ...] = (),
        signed_reasoning: bool = True,
    ) -> RelayedPlan:
        """Return the plan for one upstream. Raises RequestRefused."""
        to = destination
        assert self.endpoint is not None
        base_url, version = to.settings.base_url_for(to.upstream.name, self.upstreams), to.upstream.base_path
        path = self.path.removeprefix(version)
        if path == self.path:  # it has another version, or none
            base_url = base_url.removesuffix(version)
        body = splice_model(self.body, self._head, to.upstream_model) if self._head.fields else self.body
        context = ResponseContext(
            request=Request(self.client.name, to.model, ()),
            id=self.id,
            now=self.now,
            model=to.model,
            prompt_tokens=len(body) // _BYTES_PER_TOKEN,
            mask=Scrub(self.settings.mask, to.settings, tuple(to.accounts)),
        )
        return RelayedPlan(
            id=self.id,
            client=self.client,
            endpoint=self.endpoint,
            destination=to,
            body=body,
            members=frozenset(),
            request=None,
            planner=self,
            losses=Ledger(),
            relayed=True,
            rewritten=False,
            fan_out=1,
            context=context,
            base_url=base_url,
            path=with_query(path, self.query),
            headers=self._relayed_headers(to),
            streams=True,
            fallbacks=fallbacks,
            is_repeatable=self.row.is_repeatable,
            row=self.row,
            method=self.method,
            wants_stream=self._head.stream,
        )

    def _relayed_headers(self, to: Destination) -> HeaderList:
        """Return the headers of the request to the upstream, with those of the client's about bodies."""
        headers = dict(
            upstream_request_headers(to.settings, to.upstream, to.upstream, self.headers, stream=False)
        )
        headers["accept"] = self.headers.get("accept", "*/*")
        headers.pop("content-type")
        named = self.headers.get("content-type", JSON if self.body else "")
        if named:
            headers["content-type"] = named
        return list(headers.items())
