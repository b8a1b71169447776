"""Examine one upstream: where its protocols are served, its list of models with each account, and if wanted one tiny
response.

The requests are made like the gateway's: by its client, its fetching of lists, its plan of a client's request. So the
gateway meets the failures found here.
"""

import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
from msgspec import structs
from msgspec.structs import replace

from dragoman import PROTOCOLS, UPSTREAMS, RemoteProtocolError, RequestRefused, peek
from dragoman.codec import SSE
from dragoman.jsontext import decode_object, encode
from dragoman_server.accounts.balances import fetch_balance, reports_balance
from dragoman_server.capabilities.provider import MESSAGES
from dragoman_server.cli.doctor.context_windows import small_window
from dragoman_server.cli.doctor.endpoint_paths import (
    EndpointPath,
    configured_paths,
    is_missing,
    other_base,
    other_paths,
    served_paths,
    status_at,
)
from dragoman_server.cli.doctor.exchange import Exchange
from dragoman_server.cli.doctor.failures import SILENT, WRONG_MODEL, Cause, cause_of, cause_of_status
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.hosts import HostError
from dragoman_server.hosts.credentials import cloud_credential
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.listing import ModelListError, can_list, fetch_models
from dragoman_server.models.routes import ModelRoute, default_model_of, filter_chat_models, resolve
from dragoman_server.platform.clock import utc_text
from dragoman_server.proxying.plan import Plan, Planner
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.settings.patterns import WILDCARD, targets_of
from dragoman_server.settings.problems import (
    CheckFinding,
    CheckSeverity,
    dotted,
    nearest,
    printable,
    quote_value,
)
from dragoman_server.settings.upstreams import DEFAULT_ACCOUNT
from dragoman_server.upstream.account_request import account_request
from dragoman_server.upstream.client import UpstreamClient, environment_proxy, origin_of
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.wire.headers import media_type

_NO_MONEY = 402
_ABOUT_THE_KEY = (401, 402, 403)
# What a body that is no request shows of a key, or a proxy: some list their models for any key.
_REFUSED = (401, 407)

# A list of models may come in many pages and slowly: so many times the time limit of one wait.
_WAITS = 3
# Seconds for the tiny response: a local server may load the model first.
_SPEND_TIMEOUT_S = 90.0
# The smallest limit that all upstreams accept: Responses has it.
_MAX_TOKENS = 16
# A response with so few tokens has some kilobytes; errors are cut.
_MAX_RESPONSE_BYTES = 256 * 1024
_MAX_ERROR_LENGTH = 300

# How many models are named.
_MODELS_NAMED = 3


@dataclass(slots=True)
class UpstreamExamination:
    """The examination of one upstream.

    Attributes:
        index: Its place in the settings.
        timeout_s: The longest time of each wait.
        spend: Also request a tiny response with each account, which costs money.
        first_requests: See small_window().
        findings: Grow while run() runs.
        ahead_s: How far this machine's clock is ahead of the upstream's, None if unknown.
        listed: The models in its list, by name; None if it has returned none.
        unreachable: No account gets a connection.
    """

    loaded: LoadedConfig
    index: int
    client: UpstreamClient
    timeout_s: float
    spend: bool
    limiter: anyio.CapacityLimiter
    first_requests: Mapping[str, int] = field(default_factory=dict)
    findings: list[CheckFinding] = field(default_factory=list)
    ahead_s: float | None = None
    _responds: bool = False
    _cannot_connect: bool = False
    listed: dict[str, ModelInfo] | None = None

    @property
    def upstream(self) -> UpstreamSettings:
        return self.loaded.settings.upstreams[self.index]

    @property
    def subject(self) -> str:
        return f"upstream {self.upstream.name}"

    @property
    def unreachable(self) -> bool:
        return self._cannot_connect and not self._responds

    async def run(self) -> None:
        """Examine the paths and all accounts in parallel, then the lists of models."""
        accounts = self.loaded.settings.accounts_of(self.upstream)
        found = [account for account in accounts if cloud_credential(self.upstream, account) is not None]
        self._add(await self._each(self._credential, found))
        async with anyio.create_task_group() as tasks:
            look = tasks.start_soon(self._paths, accounts[0])
            listed = await self._each(self._list, accounts) if can_list(self.upstream) else []
        paths = look.return_value
        # A wrong path is reported once, by the check that knows how to correct it.
        if any(finding.check == "protocol" for finding in paths):
            listed = [finding for finding in listed if finding.check != "base_url"]
        wrong = [finding for finding in (*listed, *paths) if finding.check == "base_url"]
        best = [finding for finding in wrong if finding.severity is CheckSeverity.ERROR] or wrong
        self._add(finding for finding in (*listed, *paths) if finding not in wrong or finding == best[0])
        if not can_list(self.upstream):
            text = "its list of models is not requested, so little is known of it without --spend"
            self._add([CheckFinding.note("models", self.subject, text)])
        if self.listed is not None:
            self._add(self._missing_models())
            self._add(self._small_windows())
        if self.spend:
            self._add(await self._each(self._call, accounts))

    def _add(self, findings: Iterable[CheckFinding]) -> None:
        """Add findings, but none that another check has had as well."""
        for finding in findings:
            if all((finding.text, finding.subject) != (known.text, known.subject) for known in self.findings):
                self.findings.append(finding)

    async def _each(
        self,
        examine: Callable[[AccountSettings], Awaitable[CheckFinding]],
        accounts: Sequence[AccountSettings],
    ) -> list[CheckFinding]:
        """Examine the accounts at the same time, and return the findings in the accounts' order."""

        async def one(account: AccountSettings) -> CheckFinding:
            async with self.limiter:
                return await examine(account)

        async with anyio.create_task_group() as tasks:
            found = [tasks.start_soon(one, account) for account in accounts]
        return [each.return_value for each in found]

    async def _credential(self, account: AccountSettings) -> CheckFinding:
        """Find the credentials of an account that has no key, and say whose they are and how long they last."""
        credential, subject = cloud_credential(self.upstream, account), self._subject_of(account)
        assert credential is not None  # see run()
        try:
            found = await credential.get(time.time())
        except HostError as error:
            detail = printable(self.loaded.settings.mask(error.detail)[:_MAX_ERROR_LENGTH], " ")
            fix = f"add api_key, or identity, or log in with the vendor's own command: {self._place('name')}"
            return CheckFinding.error(
                "credentials", subject, ": ".join(filter(None, (str(error), detail))), fix
            )
        ends = "" if found.until is None else f", until {utc_text(found.until)}"
        return CheckFinding.ok("credentials", subject, f"uses {found.source}{ends}")

    # Where the protocols are served.

    async def _paths(self, account: AccountSettings) -> list[CheckFinding]:
        """Look where the upstream's protocols are served, and if one is not, which others are."""
        exchange, upstream = Exchange(self.client), self._patient
        findings: list[CheckFinding] = []
        async with self.limiter:
            with anyio.move_on_after(self.timeout_s * _WAITS):
                for endpoint in configured_paths(upstream):
                    try:
                        status = await status_at(exchange, upstream, account, endpoint)
                    except UpstreamError as error:
                        return [self._not_sent(account, error)]
                    self._responds = True
                    if is_missing(status):
                        served = await served_paths(self.client, upstream, account, other_paths(upstream))
                        findings.append(self._misplaced(endpoint, status, served))
                    elif status in _REFUSED:
                        findings.append(self._failed(account, cause_of_status(status)))
        return findings

    def _misplaced(self, endpoint: EndpointPath, status: int, served: Sequence[EndpointPath]) -> CheckFinding:
        """Return the finding for a protocol that is not served where it is configured. served: where one is."""
        base, spoken = self.upstream.base_url.rstrip("/"), self.upstream.protocols
        text = f"has nothing at {endpoint.path} (status {status}), where {endpoint.protocol} is requested"
        other = next((other_path for other_path in served if other_path.protocol == endpoint.protocol), None)
        if other is not None:
            change, fix = self._other_base(other.base_url)
            text += f", but has something if you {change}"
            return CheckFinding.error("base_url", self.subject, text, fix)
        place = self._place("protocol")
        other = next((other_path for other_path in served if other_path.protocol not in spoken), None)
        if endpoint.protocol != self.upstream.protocol:
            fix = f"leave {quote_value(endpoint.protocol)} out of protocols: {self._place('name')}"
        elif other is None:
            fix = f"correct the base URL, or the protocol ({place}): {self._base_url_place}"
            return CheckFinding.error("base_url", self.subject, text, fix)
        else:
            text += f"; {other.protocol} answers at {other.path}"
            fix = f"write protocol = {quote_value(other.protocol)}: {place}"
            if other.base_url != base:
                fix += f"; and {self._other_base(other.base_url)[0]}"
        return CheckFinding.error("protocol", self.subject, text, fix)

    # The list of models.

    async def _list(self, account: AccountSettings) -> CheckFinding:
        """Request the list with an account, and with the other form of the base URL if there is none."""
        began = anyio.current_time()
        exchange, listed = await self._fetch(self._patient, account)
        subject = self._subject_of(account)
        self._responds = self._responds or exchange.status is not None
        if exchange.ahead_s is not None:
            self.ahead_s = exchange.ahead_s
        if listed is not None:
            self.listed = {**(self.listed or {}), **{model.id: model for model in listed}}
            took = anyio.current_time() - began
            names = ", ".join(quote_value(model.id) for model in listed[:_MODELS_NAMED])
            more = f" and {len(listed) - _MODELS_NAMED} more" if len(listed) > _MODELS_NAMED else ""
            text = f"responds within {took:.2f} s; its models: {names}{more}"
            if listed:
                return await self._balance(account) or CheckFinding.ok("models", subject, text)
            text, fix = "responds, but lists no models", "load a model there"
            return CheckFinding.warning("models", subject, text, fix)
        if exchange.error is not None:
            return self._not_sent(account, exchange.error)
        if exchange.status is None:
            text = f"sent no list of models within {self.timeout_s * _WAITS:g} s"
            return self._failed(account, SILENT, text)
        if exchange.redirected_to:
            fix = f"write that address into the base URL: {self._base_url_place}"
            text = f"it redirects to {exchange.redirected_to}, and redirects are not followed"
            return CheckFinding.error("base_url", subject, text, fix)
        if exchange.status in (200, 404, 405):
            return await self._other_base_url(account, exchange.status)
        return self._failed(account, cause_of_status(exchange.status))

    async def _balance(self, account: AccountSettings) -> CheckFinding | None:
        """Return the problem of a key or its money, where the upstream reports one.

        Some upstreams list their models for any key.
        """
        if not reports_balance(self.upstream):
            return None
        protocol = UPSTREAMS[self.upstream.protocol]
        # An error is none of the key: it responds, as the list of models has shown.
        with anyio.move_on_after(self.timeout_s), suppress(UpstreamError):
            status, amount = await fetch_balance(self.client, self.upstream, protocol, account)
            if amount == 0:
                status = _NO_MONEY
            if status in _ABOUT_THE_KEY:
                return self._failed(account, cause_of_status(status))
        return None

    @property
    def _patient(self) -> UpstreamSettings:
        """The upstream with the limits of this examination."""
        names = ("connect_s", "read_s", "write_s", "pool_s")
        limits = {name: min(getattr(self.upstream, name), self.timeout_s) for name in names}
        return replace(self.upstream, **limits)

    async def _fetch(
        self, upstream: UpstreamSettings, account: AccountSettings
    ) -> tuple[Exchange, tuple[ModelInfo, ...] | None]:
        exchange = Exchange(self.client)
        with anyio.move_on_after(self.timeout_s * _WAITS):
            try:
                return exchange, await fetch_models(exchange, upstream, [account])
            except ModelListError:
                return exchange, None
        exchange.status = None
        return exchange, None

    async def _other_base_url(self, account: AccountSettings, status: int) -> CheckFinding:
        """Request the list where it is with /v1 at the end of the base URL, or without it."""
        subject, other = self._subject_of(account), other_base(self.upstream.base_url.rstrip("/"))
        _, listed = await self._fetch(replace(self._patient, base_url=other), account)
        if listed is not None:
            change, fix = self._other_base(other)
            text = f"has no list of models there, but has one if you {change}"
            return CheckFinding.error("base_url", subject, text, fix)
        if status == 200:
            text = "returned something else than a list of models"
            return CheckFinding.error(
                "base_url", subject, text, f"correct the base URL: {self._base_url_place}"
            )
        text = f"has no list of models there (status {status})"
        fix = (
            f"correct the base URL: {self._base_url_place}; or add model_list = false: {self._place('name')}"
        )
        return CheckFinding.warning("base_url", subject, text, fix)

    def _other_base(self, other: str) -> tuple[str, str]:
        """Return how the base URL has to be changed, and what to do for that. other: with or without its version."""
        removed = self.upstream.base_url.rstrip("/").removeprefix(other)
        what = "add /v1" if other.endswith("/v1") else f"remove {removed}"
        change = f"{what} at the end of the base URL"
        variable = self.upstream.variables.get("base_url")
        written = self.loaded.origin("upstreams", self.index, "base_url").raw
        if written is not None or urlsplit(other).path not in ("", "/v1"):
            return change, f"{change}: {self._base_url_place}"  # a part of it may be private
        if variable is not None:
            return change, f"export {variable}={shlex.quote(other)}"
        return change, f"write base_url = {quote_value(other)}: {self._base_url_place}"

    def _missing_models(self) -> Iterator[CheckFinding]:
        """Yield the models to which requests are routed, and which the upstream does not list."""
        names = set(self.listed or ())
        # `qwen3` means `qwen3:latest` at Ollama, and lists may have a prefix before each name.
        known = (
            names | {name.rpartition("/")[2] for name in names} | {name.partition(":")[0] for name in names}
        )
        if not names:
            return
        for model, (place, severity) in self._routed_models().items():
            if model in known:
                continue
            other = nearest(model, names)
            named = f"{quote_value(other)}, or another name in its list" if other else "a name in its list"
            text = f"does not list the model {quote_value(model)}, which requests are routed to"
            yield CheckFinding(severity, "models", self.subject, text, f"write {named}: {place}")

    def _small_windows(self) -> Iterator[CheckFinding]:
        """Yield the models for agents whose context window is too small: those that requests lead to by themselves."""
        listed = self.listed or {}
        for model in dict.fromkeys([*self._routed_models(), default_model_of(self.upstream, listed)]):
            if found := small_window(self.subject, listed.get(model or ""), self.first_requests):
                yield found

    def _routed_models(self) -> dict[str, tuple[str, CheckSeverity]]:
        """Return the names of models that the configuration has for this upstream, each with its place."""
        loaded, settings, upstream = self.loaded, self.loaded.settings, self.upstream
        found: dict[str, tuple[str, CheckSeverity]] = {}
        for alias, chain in settings.models.items():
            for target in targets_of(chain):
                name, _, model = target.partition("/")
                if name == upstream.name and WILDCARD not in model:
                    found.setdefault(model, (loaded.origin("models", alias).place, CheckSeverity.ERROR))
        for model in upstream.models:
            place = loaded.origin("upstreams", self.index, "models").place
            found.setdefault(model, (place, CheckSeverity.ERROR))
        if settings.server.default_model is not None:
            route = resolve(settings, None, settings.server.default_model)
            if isinstance(route, ModelRoute) and route.upstream == upstream.name:
                place = loaded.origin("server", "default_model").changed_at
                found.setdefault(route.upstream_model, (place, CheckSeverity.ERROR))
        if upstream.default_model is not None:
            # A well-known host has it from a table, which may be older than the host's list.
            path = ("upstreams", self.index, "default_model")
            configured = dotted(path) in loaded.settings.origins
            severity = CheckSeverity.ERROR if configured else CheckSeverity.WARNING
            found.setdefault(
                upstream.default_model, (f"default_model in {loaded.origin(*path).place}", severity)
            )
        return found

    # A tiny response.

    async def _call(self, account: AccountSettings) -> CheckFinding:
        """Request a response of a few tokens, as the gateway requests it for a client."""
        subject, model = self._subject_of(account), self._example_model()
        if model is None:
            fix = f'add default_model = "NAME": {self._place("name")}'
            return CheckFinding.warning("response", subject, "no model is known to request", fix)
        exchange, began = Exchange(self.client), anyio.current_time()
        try:
            plan = self._plan(model)
            destination = plan.destination
            patient = replace(destination.settings, read_s=min(destination.settings.read_s, _SPEND_TIMEOUT_S))
            with anyio.move_on_after(_SPEND_TIMEOUT_S + self.timeout_s):
                async with await account_request(
                    exchange, patient, destination.upstream, account, plan.call
                ) as response:
                    received = await response.read_all(_MAX_RESPONSE_BYTES)
                if response.status == 200:
                    # Some upstreams send a stream to everyone.
                    streams = media_type(response.headers) == SSE.media_type
                    member = destination.upstream.output_member
                    if not streams and member not in decode_object(received, "the response"):
                        raise RemoteProtocolError("the response has no output")
                    took = anyio.current_time() - began
                    text = f"{quote_value(model)} responds within {took:.2f} s"
                    return CheckFinding.ok("response", subject, text)
                error = destination.upstream.read_error(response.status, received)
                return self._refused(account, model, response.status, error.message)
        except (RemoteProtocolError, RequestRefused) as error:
            fix = f"correct the base URL or the protocol: {self._base_url_place}"
            return CheckFinding.error("response", subject, f"{quote_value(model)}: {error}", fix)
        except UpstreamError as error:
            return self._not_sent(account, error)
        text = f"{quote_value(model)} sent no response within {_SPEND_TIMEOUT_S:g} s"
        return self._failed(account, SILENT, text)

    def _example_model(self) -> str | None:
        """Return a model that the upstream should have."""
        routed = [
            model for model, (_, severity) in self._routed_models().items() if severity is CheckSeverity.ERROR
        ]
        models = self.listed or ()
        known = [model for model in routed if self.listed is None or model in self.listed]
        default = default_model_of(self.upstream, models)
        return next(iter(known), None) or default or next(filter_chat_models(models), None)

    def _plan(self, model: str) -> Plan:
        """Return the plan of a short request. Raises RemoteProtocolError and RequestRefused."""
        request = {
            "model": f"{self.upstream.name}/{model}",
            "max_tokens": _MAX_TOKENS,
            "messages": [{"role": "user", "content": "Hi"}],
        }
        # A client of Messages always sends a limit, which is translated to any other protocol's.
        client = PROTOCOLS[MESSAGES]
        settings, body, now = self.loaded.settings, encode(request), int(time.time())
        return Planner(settings, client, {}, "", body, peek(body), id="doctor", now=now).first()

    def _refused(self, account: AccountSettings, model: str, status: int, message: str) -> CheckFinding:
        """Return the finding for an error response to a call."""
        cause = cause_of_status(status)
        if cause.check != "key":
            cause = WRONG_MODEL
        # The upstream may repeat the key, and control the terminal.
        message = printable(self.loaded.settings.mask(message)[:_MAX_ERROR_LENGTH], " ")
        text = f"a request for {quote_value(model)} returned status {status}: {message}"
        return self._failed(account, structs.replace(cause, check="response"), text)

    # Findings.

    def _not_sent(self, account: AccountSettings, error: UpstreamError) -> CheckFinding:
        """Return the finding for a request without a response."""
        proxy = account.proxy or self.upstream.proxy or environment_proxy(self.upstream.base_url)
        return self._failed(account, cause_of(error, by_proxy=proxy is not None), str(error))

    def _failed(self, account: AccountSettings, cause: Cause, reported: str = "") -> CheckFinding:
        """Return the finding for a cause. reported: the text for a cause without one."""
        self._cannot_connect = self._cannot_connect or cause.unreachable
        origin, host = origin_of(self.upstream.base_url)
        key = self._key_place(account)
        known = {"host": host, "origin": origin, "place": self._base_url_place, "key": key}
        text, fix = cause.text.format(**known) or reported, cause.fix.format(**known)
        if cause.needs_key and account.api_key is None:
            text = f"it requires a key, and none is configured: {text}"
            fix = f'add api_key = "${{NAME}}": {self._place("name")}'
        return CheckFinding(cause.severity, cause.check, self._subject_of(account), text, fix)

    def _subject_of(self, account: AccountSettings) -> str:
        return self.subject if account.name == DEFAULT_ACCOUNT else f"account {account.id}"

    def _place(self, name: str) -> str:
        """Return where a setting of the upstream is configured, or can be added."""
        return self.loaded.origin("upstreams", self.index, name).changed_at

    @property
    def _base_url_place(self) -> str:
        """Where the base URL is configured: a variable, or the line of a file."""
        return self.upstream.variables.get("base_url") or self._place("base_url")

    def _key_place(self, account: AccountSettings) -> str:
        accounts = self.loaded.settings.accounts
        if account in accounts:
            return self.loaded.origin("accounts", accounts.index(account), "api_key").changed_at
        return self._place("api_key")
