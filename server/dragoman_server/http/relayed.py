"""Serve the endpoints of `relayed.table`: find what decides where a request goes, and relay the bytes there.

That is the model, or the account that made the id in the path or body, or the upstream that `[endpoints]` has for the
path; without any it is a 404 that says what to write there.
"""

import json
import time

from starlette.routing import Route

from dragoman import RemoteProtocolError, RequestHead, RequestRefused, peek
from dragoman.codec import Endpoint
from dragoman.jsontext import JSONObject
from dragoman_server.accounts.stores.operations import BindIds
from dragoman_server.accounts.usage import NoMeter
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint, ByProtocol
from dragoman_server.http.operations import (
    UPSTREAM_ERRORS,
    VENDORS_OBJECT,
    ApiOperation,
    DescribedRoute,
    MediaType,
)
from dragoman_server.http.request import BodyReader, Query
from dragoman_server.models.others import other_models
from dragoman_server.proxying.affinity import referred_ids
from dragoman_server.proxying.client_request import ClientRequest, path_below_mount
from dragoman_server.proxying.relayed_plan import RelayedPlanner
from dragoman_server.proxying.upload import Upload
from dragoman_server.relayed.batch import models_in, requests_in
from dragoman_server.relayed.body import ids_in_path
from dragoman_server.relayed.form import Form, boundary_of
from dragoman_server.relayed.table import (
    BELOW,
    FORM,
    JSON,
    READ_AS_JSON,
    SENDING,
    TABLE,
    ModelPlace,
    RelayedPath,
    leads_there,
    rule_for,
)
from dragoman_server.wire.headers import media_type

# Where a client names the model of a form, besides the parameter `model` of the query.
MODEL_HEADER = "dragoman-model"


def relayed_routes(gateway: Gateway) -> list[Route]:
    """Return the routes of the table."""
    found: dict[tuple[str, tuple[str, ...]], list[RelayedPath]] = {}
    for row in TABLE:
        for path in row.paths:
            found.setdefault((path, row.methods), []).append(row)
    routes: list[Route] = []
    for (path, methods), rows in found.items():
        endpoints = [RelayingEndpoint(gateway, row, path) for row in rows]
        endpoint = endpoints[0] if len(endpoints) == 1 else ByProtocol(endpoints)
        operations = {method: _operation(rows[0], method) for method in methods}
        for template in (
            [path] if BELOW not in path else [path.removesuffix(BELOW), path.replace("}", ":path}")]
        ):
            routes.append(DescribedRoute(template, endpoint, **operations))
    return routes


def _operation(row: RelayedPath, method: str) -> ApiOperation:
    answers = [VENDORS_OBJECT if each == JSON else MediaType(each) for each in row.answers]
    return ApiOperation(
        summary=row.does,
        answers={200: answers},
        errors=UPSTREAM_ERRORS,
        body=VENDORS_OBJECT if method in SENDING else None,
        body_types=row.requests,
        requires_body=row.needs_model,
        place="the vendor's id, or the name of a model",
    )


class RelayingEndpoint(BaseEndpoint):
    """One path of a row."""

    endpoint: Endpoint

    def __init__(self, gateway: Gateway, row: RelayedPath, path: str) -> None:
        # Its clients get errors in the form of the first vendor.
        specs = [each for each in gateway.upstreams.values() if each.model_list_form == row.vendors[0]]
        protocol = specs[0] if specs else next(iter(gateway.protocols.values()))
        super().__init__(gateway, protocol, Endpoint(path, streams="always"))
        self._row = row

    async def serve(self, request: ClientRequest) -> None:
        path = path_below_mount(request.scope)
        if not (self._row.model is ModelPlace.PATH or leads_there(self.endpoint.path, path)):
            raise RequestRefused(
                f"{path[:100]!a} is no path of this endpoint", status=404, code="unknown_url"
            )
        server = self.gateway.settings.server
        reader = BodyReader(
            request.receive,
            request.headers,
            self._row.max_bytes or server.max_body_bytes,
            server.body_timeout_s,
        )
        upload = Upload(reader)

        async def bind(found: JSONObject, left: bool) -> bool:
            """Store who made the ids in a response, before its client has them."""
            now = time.time()
            await self.gateway.accounts.apply(BindIds(found["ids"], request.record.account or "", now))
            return True

        try:
            planner = await self._planner(request, path, upload)
            wants_stream = planner.request_head is not None and planner.request_head.stream
            plan = await self.first_plan(request, planner)
            del planner  # the plan has it, until nothing more is sent
            handling = self.carry_out(request, plan, store_response=bind if self._row.has_ids else None)
            del plan
            await handling
            request.record.stream = wants_stream
        finally:
            await upload.aclose()

    async def _planner(self, request: ClientRequest, path: str, upload: Upload) -> RelayedPlanner:
        """Read what is needed of the body, and return what plans the request. Raises what read() does."""
        gateway, row, sends = self.gateway, self._row, request.scope["method"] in SENDING
        body, head, boundary, form_model = await self._read_head(request, upload)
        models = [head.model] if head.model else []
        if row.model is ModelPlace.REQUESTS:
            models = await request.off_loop(len(body or b""), models_in, body or b"")
        others = list[str]()
        if request.key is not None and request.key.limits_models and sends:
            others = await request.off_loop(len(body or b""), _others_of, row, head, body or b"")
            if not row.shows_cost(has_model=bool(models)):
                gateway.limits.refuse_unknown_cost(request.key)
        if not models and row.model is not ModelPlace.BODY and sends:
            body = await upload.read_if_small()
        known = body or b""
        ids = [*ids_in_path(path), *await request.off_loop(len(known), referred_ids, known)]
        account, rule = await gateway.pool.account_of(ids), list[str]()
        if not models:
            rule = self._rule_or_refuse(path, account)
            account = account if account.partition("/")[0] == rule[0] else ""
            if request.key is not None:
                for upstream in rule:
                    gateway.limits.check_upstream(request.key, upstream, gateway.catalog.listed)
        for model in reversed(models or [""]):  # the first one is in the record, and counts
            counts = model in ("", *models[:1])
            await self.admit(request, model, upload.length or upload.size, counts=counts, others=others)
        if request.response.meter is not None and not row.is_text:
            request.response.meter = NoMeter()
        if body is None and sends:
            body = await upload.read_if_small()
            request.upload = upload if body is None else None
        return RelayedPlanner(
            gateway.settings,
            self.protocol,
            request.headers,
            request.query,
            body or b"",
            head,
            id=request.record.id,
            now=request.now,
            upstreams=gateway.upstreams,
            listed=gateway.catalog.listed,
            endpoint=self.endpoint,
            client_key=request.key,
            row=row,
            method=request.scope["method"],
            path=path,
            models=models,
            rule=rule,
            account=account,
            boundary=boundary,
            form_model=form_model,
            upload=request.upload,
        )

    async def _read_head(
        self, request: ClientRequest, upload: Upload
    ) -> tuple[bytes | None, RequestHead, bytes | None, str | None]:
        """Return the body if it was read whole, and what is known of it; of a form the boundary and its own model."""
        row, in_path, headers = self._row, request.model_in_path, request.headers
        if row.model is ModelPlace.BODY and media_type(headers.items()) == FORM and FORM in row.requests:
            boundary = boundary_of(headers["content-type"])
            named = headers.get(MODEL_HEADER) or Query(request.query).get("model")
            form_model = None if named else await _model_in_form(upload, boundary)
            # Clouds that name the model in the path ignore what the body says.
            return None, RequestHead(named or in_path or form_model or "", False, {}), boundary, form_model
        if row.model is ModelPlace.BODY and JSON not in row.requests:
            raise RequestRefused(f"the body has to be {FORM}", status=415)
        body = await upload.read_whole() if row.model in READ_AS_JSON else None
        known = body or b""
        return body, await request.off_loop(len(known), _head_of, row, in_path, known), None, None

    def _rule_or_refuse(self, path: str, account: str) -> list[str]:
        """Return the upstreams for a request that names no model. Raises RemoteProtocolError and RequestRefused.

        account: that made what it is about, "" if none is known.
        """
        settings, specs, row = self.gateway.settings, self.gateway.upstreams, self._row
        found = rule_for(settings.endpoints, path)
        able = [
            each.name
            for each in settings.upstreams
            if any(row.may_be_at(specs[name]) for name in each.protocols)
        ]
        if account.partition("/")[0] in able:  # else the vendors have the same id for something
            return [account.partition("/")[0]]
        # Another vendor may have the same path, and this one needs no rule for it.
        if found and (row.model is not ModelPlace.ID or not {*found}.isdisjoint(able)):
            return [*found]
        if row.needs_model:
            raise RemoteProtocolError("model is required", path="/model", code="missing_required_parameter")
        if len(able) == 1 and row.model is not ModelPlace.NONE:
            return able  # the vendor has a default model, or the id is that vendor's
        rule = f"{json.dumps(self.endpoint.path.partition('/{')[0])} = {json.dumps(next(iter(able), 'UPSTREAM'))}"
        raise RequestRefused(
            f"the request names no model, and no upstream is set for {path[:100]}: add to dragoman.toml, below "
            f"[endpoints]: {rule}",
            status=404,
            code="unknown_url",
        )


def _head_of(row: RelayedPath, model_in_path: str, body: bytes) -> RequestHead:
    """Return what is known of a request whose body is no form. Raises RemoteProtocolError."""
    if row.model is ModelPlace.BODY:
        return peek(body, model_in_path)
    model = model_in_path if row.model is ModelPlace.PATH else ""
    if row.model is ModelPlace.RESOURCE:
        model = peek(body).model.removeprefix("models/")
    return RequestHead(model, False, {})


def _others_of(row: RelayedPath, head: RequestHead, body: bytes) -> list[str]:
    """Return the models that a request names besides its own. Raises RemoteProtocolError."""
    requests = requests_in(body) if row.model is ModelPlace.REQUESTS else [(body, head)]
    return list(dict.fromkeys(name for each in requests for name in other_models(*each)))


async def _model_in_form(upload: Upload, boundary: bytes) -> str:
    """Read a form until it names a model, and return that, "" for none.

    openai-node sends the fields of a form in its caller's order, so usually the file first. A client that names the
    model outside of the form as well does not make the gateway wait for that.
    """
    form = Form(boundary)
    while form.model is None:
        data = await upload.read()
        if not data:
            form.receive_eof()
            return ""
        form.receive_data(data)
    return form.model
