"""Explain a request as it would be served at its path: those of protocols and clouds, and of the other endpoints."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from dragoman import PROTOCOLS, UPSTREAMS, RemoteProtocolError, RequestHead, RequestRefused, peek
from dragoman.codec import Endpoint, ProtocolSpec, TokenCount, UpstreamSpec, find_endpoint
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.http.cloud_paths import cloud_request_at
from dragoman_server.http.count_tokens import complete_request, upstream_count
from dragoman_server.http.relayed import (
    boundary_in,
    head_of,
    head_of_form,
    named_model,
    others_of,
    protocol_of_row,
    rule_or_refuse,
)
from dragoman_server.models.others import other_models
from dragoman_server.proxying.destinations import at_account, find_destinations
from dragoman_server.proxying.explanation import (
    EXPLAINED_AT,
    EXPLAINED_ID,
    Explanation,
    explain_chain,
    refusal,
)
from dragoman_server.proxying.plan import Planner
from dragoman_server.proxying.relayed_plan import RelayedPlanner
from dragoman_server.proxying.upload import SMALL_BYTES
from dragoman_server.relayed.batch import models_in
from dragoman_server.relayed.body import ids_in_path
from dragoman_server.relayed.form import Form
from dragoman_server.relayed.table import SENDING, ModelPlace, RelayedPath, rows_at
from dragoman_server.settings import ClientKey, Settings
from dragoman_server.wire.replies import protocol_of_client


class ClientCall(msgspec.Struct, frozen=True):
    """What a client would send.

    Attributes:
        path: Below the gateway's root.
        query: Without the question mark.
        headers: With lower-case names.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class NoEndpoint(ValueError):
    """No model is requested at a path."""


class RequestExplainer(msgspec.Struct, frozen=True, kw_only=True):
    """Explains requests to a gateway with these settings.

    Attributes:
        client_key: The key that they come with. None: they may do everything.
    """

    settings: Settings
    protocols: Mapping[str, ProtocolSpec] = msgspec.field(default_factory=lambda: PROTOCOLS)
    upstreams: Mapping[str, UpstreamSpec] = msgspec.field(default_factory=lambda: UPSTREAMS)
    client_key: ClientKey | None = None

    def explain(self, call: ClientCall, account: str = "") -> Explanation:
        """Explain one request. Raises NoEndpoint if no model is requested at its path, and nothing relayed.

        account: the id of the one that has made what it is about, "" if that is not known.
        """
        path, cloud = cloud_request_at(call.path) or (call.path, None)
        call, notes = msgspec.structs.replace(call, path=path), list[str]()
        if cloud is not None and cloud.row.cloud:
            call = msgspec.structs.replace(call, query=cloud.query_as_served(call.query))
            notes.append(f"it comes at a path of a cloud ({cloud.row.cloud}), and is served as {path}")
        model, protocol = "" if cloud is None else cloud.model, ""
        is_post, protocols = call.method == "POST", self.protocols.values()
        counting = next(_counting(protocols, path), None) if is_post else None
        found = counting or (find_endpoint(protocols, path, call.query) if is_post else None)
        try:
            if found is None:
                return self._relayed(call, account, model, notes)
            client, endpoint, in_path = found
            model, protocol = in_path or model, client.name
            if cloud is not None:
                body, moved = cloud.as_served(call.body, call.headers)
                call = msgspec.structs.replace(call, body=body, headers={**call.headers, **moved})
            head = peek(call.body, in_path)
            model = head.model
            count = client.token_count if counting is not None else None
            return self._served(call, client, endpoint, head, account, notes, count)
        except (RemoteProtocolError, RequestRefused) as error:
            return Explanation(model, protocol, (refusal("", error),), tuple(notes))

    def _served(
        self,
        call: ClientCall,
        client: ProtocolSpec,
        endpoint: Endpoint,
        head: RequestHead,
        account: str,
        notes: list[str],
        counts: TokenCount | None,
    ) -> Explanation:
        """Explain a request for a response, or for a count of tokens. Raises RemoteProtocolError and RequestRefused."""
        settings, body, change = self.settings, call.body, None
        if self.client_key is not None:
            limits = ClientLimits(settings, MemoryAccountStore())
            limits.check_model(self.client_key, client.name, head.model, others=other_models(body, head))
        chain = find_destinations(settings, client, head.model, self.upstreams)
        if counts is None:
            chain = at_account(chain, account) or chain
        else:
            chain = chain[:1]
            count = upstream_count(settings, client, counts, head, chain[0])
            if count is None:
                notes.append(
                    f"the gateway estimates the tokens, because {chain[0].target} does not count them"
                )
                return Explanation(head.model, client.name, (), tuple(notes))
            if not count.relayed:
                body = complete_request(counts, body)
                head = peek(body, head.model)
            change = count.of_plan
        planner = Planner(
            settings,
            client,
            call.headers,
            call.query,
            body,
            head,
            id=EXPLAINED_ID,
            now=EXPLAINED_AT,
            clock=lambda: EXPLAINED_AT,
            upstreams=self.upstreams,
            endpoint=endpoint,
            client_key=self.client_key,
            change=change,
        )
        return explain_chain(planner, chain, *notes)

    def _relayed(self, call: ClientCall, account: str, model_in_path: str, notes: list[str]) -> Explanation:
        """Explain a request for one of the other endpoints. Raises RemoteProtocolError and RequestRefused as well."""
        client, row, template = self._row(call)
        model_in_path = Endpoint(template).match(call.path) or model_in_path
        head, models, boundary, form_model = _read(row, call, model_in_path)
        rule, limits, key = list[str](), ClientLimits(self.settings, MemoryAccountStore()), self.client_key
        if key is not None and call.method in SENDING and not row.shows_cost(has_model=bool(models)):
            limits.refuse_unknown_cost(key)
        if not models:
            rule = rule_or_refuse(self.settings, self.upstreams, row, template, call.path, account)
            account = account if account.partition("/")[0] == rule[0] else ""
            if not account and row.has_ids and ids_in_path(call.path):
                notes.append("it goes to the account that has made the id, if that is known")
        if key is not None:
            for upstream in rule:
                limits.check_upstream(key, upstream)
            for model in reversed(models or [""]):  # as they are admitted
                limits.check_model(key, client.name, model, others=others_of(row, head, call.body))
        if len(call.body) > SMALL_BYTES and (boundary is not None or not models):
            notes.append("a large body is sent while it arrives, and to one account only")
        planner = RelayedPlanner(
            self.settings,
            client,
            call.headers,
            call.query,
            call.body,
            head,
            id=EXPLAINED_ID,
            now=EXPLAINED_AT,
            upstreams=self.upstreams,
            endpoint=Endpoint(template, streams="always"),
            client_key=key,
            row=row,
            method=call.method,
            path=call.path,
            models=models,
            rule=rule,
            account=account,
            boundary=boundary,
            form_model=form_model,
        )
        try:
            planner.first()
        except (RemoteProtocolError, RequestRefused):
            if not planner.chain:
                raise
        return explain_chain(planner, planner.chain, *notes)

    def _row(self, call: ClientCall) -> tuple[ProtocolSpec, RelayedPath, str]:
        """Return the protocol of a path's clients, its row, and the row's path that fits. Raises NoEndpoint."""
        rows = {
            spec.name: (spec, row, template)
            for row, template in rows_at(call.method, call.path)
            for spec in (protocol_of_row(self.upstreams, self.protocols, row),)
        }
        if not rows:
            paths = [endpoint.path for spec in self.protocols.values() for endpoint in spec.endpoints]
            raise NoEndpoint(
                f"no model is requested at {call.path[:100]!a}: write one of {', '.join(dict.fromkeys(paths))}, or "
                "that of another endpoint, with its method"
            )
        specs = {name: spec for name, (spec, *_) in rows.items()}
        return rows[protocol_of_client(call.query, call.headers, specs).name]


def _counting(protocols: Iterable[ProtocolSpec], path: str) -> Iterator[tuple[ProtocolSpec, Endpoint, str]]:
    """Yield the endpoint for counts at a path, with its protocol and the model that the path names."""
    for spec in protocols:
        for endpoint in spec.token_count.endpoints if spec.token_count is not None else ():
            if (model := endpoint.match(path)) is not None:
                yield spec, endpoint, model


def _read(
    row: RelayedPath, call: ClientCall, model_in_path: str
) -> tuple[RequestHead, list[str], bytes | None, str | None]:
    """Return what is known of a body, its models, the boundary of a form, and the model that it names."""
    boundary = boundary_in(row, call.headers) if row.model is ModelPlace.BODY else None
    form_model = None
    if boundary is None:
        head = head_of(row, model_in_path, call.body)
    else:
        form = Form(boundary)
        form.receive_data(call.body)
        named = named_model(call.headers, call.query)
        form_model = None if named else form.model or ""
        head = head_of_form(named, model_in_path, form_model)
    models = [head.model] if head.model else []
    if row.model is ModelPlace.REQUESTS:
        models = models_in(call.body)
    return head, models, boundary, form_model
