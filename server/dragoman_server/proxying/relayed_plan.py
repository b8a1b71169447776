"""Plan a request for an endpoint of `relayed.table`: where it goes, and by which name of its model.

Nothing else of it changes.
"""

from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import unquote_plus

import msgspec

from dragoman import Ledger, RequestRefused
from dragoman.codec import ResponseContext, fill_path
from dragoman.document import Request
from dragoman.jsontext import splice_model
from dragoman_server.accounts.usage import BYTES_PER_TOKEN
from dragoman_server.hosts import UpstreamCall
from dragoman_server.proxying.destinations import Destination, find_destinations
from dragoman_server.proxying.plan import Plan, Planner, with_query
from dragoman_server.proxying.upload import Upload, UploadContent
from dragoman_server.proxying.upstream_errors import Scrub
from dragoman_server.relayed.batch import with_models, with_named_model
from dragoman_server.relayed.body import RelayedBody
from dragoman_server.relayed.form import Form, model_field
from dragoman_server.relayed.table import JSON, READ_AS_JSON, SENDING, ModelPlace, RelayedPath
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


class RelayedPlan(Plan, frozen=True, kw_only=True):
    """A request that is relayed as it is, but for the name of its model.

    Attributes:
        row: The row of its path.
        method: Of the request.
        upload, content: Its body, if that is sent while it arrives: the client's, and what is sent of it.
    """

    row: RelayedPath
    method: str
    upload: Upload | None = None
    content: UploadContent | None = None
    ends_with_errors: ClassVar[bool] = False
    takes_any_bytes: ClassVar[bool] = True

    @property
    def is_spent(self) -> bool:
        return self.upload is not None and self.upload.begun

    @property
    def call(self) -> UpstreamCall:
        content = self.content or (self.body if self.method in SENDING else None)
        slow = _SLOW_S if self.row.is_slow else 0.0
        model = self.destination.upstream_model
        return UpstreamCall(self.method, self.url, self.headers, content, least_read_s=slow, model=model)

    def stream_head(self, status: int | None, headers: Sequence[tuple[str, str]]) -> tuple[int, HeaderList]:
        # The length of what came is not that of what is sent, if a URL in it is another one.
        kept = _BODY_HEADERS - {"content-length"} if self.row.url_member else _BODY_HEADERS
        passed = [(name, value) for name, value in headers if name in kept]
        return status or 200, [*passed, *STREAM_HEADERS, *BROWSER_HEADERS, _SANDBOX]

    def response_machine(
        self, headers: Sequence[tuple[str, str]] = (), *, upstream_streams: bool
    ) -> RelayedBody:
        row = self.row
        return RelayedBody(media_type(headers), row.ends, has_ids=row.has_ids, url_member=row.url_member)


class RelayedPlanner(Planner, kw_only=True, eq=False):
    """A client's request for an endpoint of the table. See Planner.

    Attributes:
        row, method: See RelayedPlan.
        path: That was requested, below the gateway's root.
        models: The names of its models: one, several for a batch, none where something else decides.
        rule: The upstream of the account, or those that `[endpoints]` has for it, for requests without a model.
        boundary: Of the form that the body is, None for another body.
        form_model: The model that the form names, "" for none; None if it was not read.
        upload: The body, if it is sent while it arrives.
    """

    row: RelayedPath
    method: str
    path: str
    models: Sequence[str] = ()
    rule: Sequence[str] = ()
    boundary: bytes | None = None
    form_model: str | None = None
    upload: Upload | None = None
    _renamed: dict[str, str] = msgspec.field(default_factory=dict)

    def first(self) -> Plan:
        self.chain = self._by_models() if self.models else self._by_names()
        return Planner.first(self)

    def _by_names(self) -> tuple[Destination, ...]:
        """Return the upstream of the account, or the one that `[endpoints]` has. Raises RequestRefused."""
        found = [self._usable(self._without_model(name)) for name in self.rule]
        return tuple([to for to in found if to is not None][:1]) or self._refuse(self.rule[0])

    def _by_models(self) -> tuple[Destination, ...]:
        """Return where the models lead, to one upstream. Raises RemoteProtocolError and RequestRefused."""
        chains = [
            find_destinations(self.settings, self.client, model, self.upstreams, self.listed)
            for model in self.models
        ]
        usable = [[each for to in chain if (each := self._usable(to)) is not None] for chain in chains]
        for chain, found in zip(chains, usable, strict=True):
            if not found:
                self._refuse(chain[0].settings.name)
        if len(usable) == 1:
            return tuple(usable[0])
        targets = dict.fromkeys(found[0].settings.name for found in usable)
        if len(targets) > 1:
            raise RequestRefused(
                f"the models of a batch have to lead to one upstream, and these lead to {' and '.join(targets)}",
                path="/requests",
            )
        self._renamed = {found[0].model: found[0].upstream_model for found in usable}
        return (usable[0][0],)

    def _without_model(self, name: str) -> Destination:
        settings = self.settings.upstream(name)
        assert settings is not None  # the configuration has it, and what is stored was compared with that
        rule = "the account has the id" if self.account else "[endpoints] has the path"
        spec = self.upstreams[settings.protocol]
        return Destination("", "", spec, settings, self.settings.accounts_of(settings), rule=rule)

    def _usable(self, to: Destination) -> Destination | None:
        """Return the destination with the protocol that has the path there, None if there is none."""
        specs = [self.upstreams[name] for name in to.settings.protocols]
        able = [spec for spec in specs if self.row.may_be_at(spec)]
        if not able or to.settings.name == SIMULATOR:
            return None
        return msgspec.structs.replace(to, upstream=self.client if self.client in able else able[0])

    def _refuse(self, upstream: str) -> tuple[Destination, ...]:
        able = [name for name, spec in self.upstreams.items() if self.row.may_be_at(spec)]
        spoken = f"speaks no protocol that has {self.path}: it needs {' or '.join(able)}"
        lacks = f"has no {self.path}" if upstream == SIMULATOR else spoken
        raise RequestRefused(
            f'the upstream "{upstream}" {lacks}', status=404, path="/model", code="model_not_found"
        )

    def plan(
        self,
        destination: Destination,
        *,
        fallbacks: tuple[Destination, ...] = (),
        signed_reasoning: bool = True,
    ) -> RelayedPlan:
        """Return the plan for one upstream. Raises RemoteProtocolError and RequestRefused."""
        to = destination
        assert self.endpoint is not None
        base_url, version = to.settings.base_url_for(to.upstream.name, self.upstreams), to.upstream.base_path
        whole = self.path if self.row.model is not ModelPlace.PATH else self.endpoint.path
        path = fill_path(whole, to.upstream_model).removeprefix(version)
        if version and path == whole:  # it has another version, or none
            base_url = base_url.removesuffix(version)
        body, content = self._content(to.upstream_model)
        scrub = Scrub(self.settings.mask, to.settings, tuple(to.accounts))
        context = ResponseContext(
            request=Request(self.client.name, to.model, ()),
            id=self.id,
            now=self.now,
            model=to.model,
            prompt_tokens=len(body) // BYTES_PER_TOKEN if self.boundary is None else 0,
            mask=scrub,
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
            scrub=scrub,
            base_url=base_url,
            path=with_query(path, self._query()),
            headers=self._relayed_headers(to),
            streams=True,
            fallbacks=fallbacks,
            is_repeatable=self.row.is_repeatable and self.upload is None,
            may_be_elsewhere=self.row.has_ids and not self.models and not self.account,
            row=self.row,
            method=self.method,
            upload=self.upload,
            content=content,
        )

    def _content(self, upstream_model: str) -> tuple[bytes, UploadContent | None]:
        """Return the body with another name of its model: as bytes, or as what sends it while it arrives."""
        model, upload = self.models[0] if self.models else "", self.upload
        form, length = None, None if upload is None else upload.length
        if self.boundary is not None:
            named = model if self.form_model is None else self.form_model
            form = Form(self.boundary, upstream_model if model else None, named or None, adds=not named)
            if length is not None and model:
                before, after = named.encode(), upstream_model.encode()
                length += (
                    len(after) - len(before) if named else len(model_field(self.boundary, upstream_model))
                )
        if upload is not None:
            return b"", UploadContent(upload, form, length)
        if form is not None:
            return form.receive_data(self.body) + form.receive_eof(), None
        if self.row.model in (ModelPlace.PATH, ModelPlace.RESOURCE):
            return with_named_model(self.body, upstream_model), None
        if self.row.model is ModelPlace.REQUESTS and self.models:
            # Also if no name changes: of a member that is there twice the upstream gets the one that was checked.
            return with_models(self.body, self._renamed or {model: upstream_model}), None
        return splice_model(self.body, self.request_head, upstream_model) if model else self.body, None

    def _relayed_headers(self, to: Destination) -> HeaderList:
        """Return the headers of the request to the upstream, with those of the client's about bodies."""
        headers = dict(
            upstream_request_headers(to.settings, to.upstream, to.upstream, self.headers, stream=False)
        )
        headers["accept"] = self.headers.get("accept", "*/*")
        headers.pop("content-type")
        if self.body or self.upload is not None:
            # What was read as JSON goes there as that: another reading of it may have another model.
            is_json = self.boundary is None and self.row.model in READ_AS_JSON
            headers["content-type"] = JSON if is_json else self.headers.get("content-type", JSON)
        return list(headers.items())

    def _query(self) -> str:
        """Return the query without what is for the gateway: a key, and the model of a form."""
        own = {spec.auth_query for spec in self.upstreams.values()}
        if self.boundary is not None:
            own.add("model")
        # The name as it was decoded where the key was found.
        return "&".join(
            [each for each in self.query.split("&") if unquote_plus(each.partition("=")[0]) not in own]
        )
