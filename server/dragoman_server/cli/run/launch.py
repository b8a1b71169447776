"""Start a gateway for one command, or use one that runs, and choose the models that the command gets."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from urllib.parse import urlsplit

import anyio
import click
from msgspec import structs

from dragoman import UPSTREAMS
from dragoman_server.cli.clients import ANY_KEY, CLIENTS, Client, ClientTarget, client_of, first_requests
from dragoman_server.cli.doctor.command import finding_lines
from dragoman_server.cli.doctor.context_windows import small_window
from dragoman_server.cli.doctor.online import examine_upstreams
from dragoman_server.cli.doctor.upstreams import UpstreamExamination
from dragoman_server.cli.model_lists import ModelLists, OfferedModels, fetch_lists
from dragoman_server.cli.options import FAILURE, USAGE_ERROR, exit_with, load_or_exit, print_lines
from dragoman_server.cli.run.child import HUNG_UP, run_child
from dragoman_server.cli.run.private_gateway import HOST, private_settings, starting
from dragoman_server.cli.usage import with_usage_file
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.listing import can_list
from dragoman_server.models.routes import (
    UnknownModel,
    deciding_upstream,
    filter_chat_models,
    resolve,
    resolve_chain,
)
from dragoman_server.serving.sockets import BoundAddress, StartupError
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.settings.patterns import WILDCARD, matches
from dragoman_server.settings.problems import CheckSeverity
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.server import KEY_VARIABLE

# A user waits for it: how long for each wait for an upstream, and for all of them.
_WAIT_S = 2.0
_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that gets a gateway.

    Attributes:
        gateway: The URL of one that runs, None to start one.
        model, small_model: None if the user chooses none.
    """

    client: Client
    gateway: str | None
    config_file: str | None
    model: str | None
    small_model: str | None

    def shell_lines(self, command: str, environ: Mapping[str, str]) -> Iterator[str]:
        """Return the lines for a shell with which `command` uses a gateway that runs. Raises StartupError."""
        return self.client.shell_lines(command, self._running(), environ)

    def run(self, program: str, words: Sequence[str], log_file: str | None) -> int:
        """Run the command and return its exit status. Raises StartupError, CannotRun.

        words: the command as the user wrote it. log_file: for the log of a gateway that is started.
        """
        if self.gateway is not None:
            return self._run(program, words, self._running())
        loaded = load_or_exit(self.config_file, {"host": HOST, "port": "0", "workers": "1"})
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
        settings = private_settings(with_usage_file(loaded).settings)
        if not settings.upstreams:
            click.echo(
                "warning: there is no upstream: the models are those of the built-in simulator", err=True
            )
        if log_file is None and settings.server.log_level != "error":
            settings = structs.replace(settings, server=structs.replace(settings.server, log_level="warning"))
        with _log(log_file) as log, starting(settings, log) as own:
            examinations = self._examine(loaded)
            lists = {examination.upstream.name: _list_of(examination) for examination in examinations}
            models = OfferedModels(settings, lists)
            needed = self._upstreams(models)
            if needed and needed <= {each.upstream.name for each in examinations if each.unreachable}:
                exit_with(FAILURE, "the command was not started, because its models cannot be reached")
            target = self._choose(ClientTarget(own.url, own.key), models)
            own.wait_until_ready()
            status = self._run(program, words, target)
            if own.has_ended:
                click.echo("dragoman: the gateway ended before the command did", err=True)
            elif not own.was_used and status != HUNG_UP:  # nobody could read it
                name = PurePath(words[0]).name
                text = f"{name} sent no request to the gateway: its own settings or arguments may lead it elsewhere"
                click.echo(f"dragoman: {text}", err=True)
        return status

    def _run(self, program: str, words: Sequence[str], target: ClientTarget) -> int:
        changes = self.client.environment(target, os.environ)
        environ = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
        # Another program that starts the client, such as npx, would take the option for its own.
        text = self.client.settings(target) if client_of(words[0]) is self.client else None
        with _settings_file(self.client.settings_option, text) as settings:
            options = [*settings, *self.client.arguments(target)]
            return run_child(program, [words[0], *options, *words[1:]], environ)

    def _examine(self, loaded: LoadedConfig) -> list[UpstreamExamination]:
        """Look at each upstream, and print problems as `dragoman doctor` does."""
        if not loaded.settings.upstreams:
            return []
        examinations = anyio.run(partial(examine_upstreams, loaded, timeout_s=_WAIT_S, limit_s=_LOOK_S))
        for finding in chain.from_iterable(examination.findings for examination in examinations):
            if finding.severity is CheckSeverity.ERROR:
                print_lines(finding_lines(finding), sys.stderr, os.environ)
        return examinations

    def _keeps_names(self, settings: Settings) -> bool:
        """True if nobody chooses a model, and the gateway routes all names that the client requests by itself."""
        own = self.client.own_models
        return self.model is None and bool(own) and all(_is_routed(settings, name) for name in own)

    def _upstreams(self, models: OfferedModels) -> set[str]:
        """Return the upstreams that the models of the command lead to; all of them if no model is known."""
        settings, names = models.settings, list(self.client.own_models)
        if not self._keeps_names(settings):
            model = self.model or models.example()[0]
            if model is None:
                return {upstream.name for upstream in settings.upstreams}
            names = [model]
        chains = [resolve_chain(settings, None, name, models.infos) for name in names]
        return {route.upstream for chain in chains if isinstance(chain, tuple) for route in chain}

    def _running(self) -> ClientTarget:
        """Return how to use a running gateway: the one at the user's URL, else the one with this configuration."""
        key = os.environ.get(KEY_VARIABLE) or ANY_KEY
        if self.gateway is not None:
            return self._choose_listed(ClientTarget(_root(self.gateway), key))
        settings = load_or_exit(self.config_file, {}).settings
        server = settings.server
        address = BoundAddress.of(server, server.host, server.port)
        if settings.needs_keys and key == ANY_KEY:
            click.echo(f"warning: the gateway needs a client key: set {KEY_VARIABLE}", err=True)
        models = OfferedModels(settings, _fetch_lists(settings))
        return self._choose(ClientTarget(address.local_url, key), models)

    def _choose(self, target: ClientTarget, models: OfferedModels) -> ClientTarget:
        """Return the target with models of a gateway that offers these. Exits if none is known."""
        target = replace(target, models=models.names())
        if self._keeps_names(models.settings):
            context = self._context_of(_smallest(models, self.client.own_models))
            return replace(target, small_model=self.small_model, context=context)
        model = self.model or models.example()[0]
        if model is None:
            exit_with(USAGE_ERROR, f"{models.why_unknown()}: choose one with --model NAME")
        for name in filter(None, (model, self.small_model)):
            if isinstance(unknown := models.route(name), UnknownModel):
                exit_with(USAGE_ERROR, f"{unknown.message}")
        return self._with_model(target, model, models.info(model))

    def _choose_listed(self, target: ClientTarget) -> ClientTarget:
        """Return the target with models that the running gateway lists. Raises StartupError if there are none."""
        protocol = next(name for name, spec in UPSTREAMS.items() if spec.base_path)
        upstream = UpstreamSettings(
            name="gateway", protocol=protocol, base_url=target.openai_url, api_key=Secret(target.key)
        )
        listed = _fetch_lists(Settings(upstreams=(upstream,)))[upstream.name]
        if isinstance(listed, str):
            raise StartupError(
                f"the gateway at {target.url} returned no list of models ({listed}): check the address, and "
                f"{KEY_VARIABLE} if it needs a key"
            )
        infos = {info.id: info for info in listed}
        names = tuple(filter_chat_models(infos))
        target = replace(target, models=names)
        families = {own.partition("-")[0] + "-" + WILDCARD for own in self.client.own_models}
        if self.model is None and any(matches(name, family) for family in families for name in names):
            return replace(target, small_model=self.small_model)
        model = self.model or next(iter(names), None)
        if model is None:
            raise StartupError(f"the gateway at {target.url} lists no models: choose one with --model NAME")
        return self._with_model(target, model, infos.get(model))

    def _with_model(self, target: ClientTarget, model: str, info: ModelInfo | None) -> ClientTarget:
        context, output = self._context_of(info), None if info is None else info.output
        small_model = self.small_model or model
        return replace(target, model=model, small_model=small_model, context=context, output=output)

    def _context_of(self, info: ModelInfo | None) -> int | None:
        """Return the context window of the command's model, and print if it is too small for the command."""
        needs = {
            name: tokens for name, tokens in first_requests(CLIENTS).items() if CLIENTS[name] is self.client
        }
        found = small_window("the model", info, needs)
        if found is not None:
            print_lines(finding_lines(found), sys.stderr, os.environ)
        return None if info is None else info.context


def _root(url: str) -> str:
    """Return the URL of a gateway without the path that OpenAI's SDKs need."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(
            f"{url!a} is not a URL such as http://127.0.0.1:8080", param_hint="--gateway"
        )
    return url.rstrip("/").removesuffix("/v1")


def _is_routed(settings: Settings, name: str) -> bool:
    """True if a name leads to the model of that name, or where [models] says, and not to some default."""
    if not settings.upstreams and not settings.models:
        return False
    if deciding_upstream(settings, name) is not None:
        return False
    return not isinstance(resolve(settings, None, name), UnknownModel)


def _smallest(models: OfferedModels, names: Sequence[str]) -> ModelInfo | None:
    """Return the model with the smallest context window of those that names of a client stand for.

    None if no window is known. A client that gets the model of a name itself has its own figure.
    """
    infos = [info for name in names if (info := models.info(name)) is not None and info.id != name]
    return min(filter(lambda info: info.context, infos), key=lambda info: info.context or 0, default=None)


def _list_of(examination: UpstreamExamination) -> tuple[ModelInfo, ...] | str:
    """Return the models of an upstream, or why they are unknown."""
    if examination.listed is not None:
        return tuple(examination.listed.values())
    return next((finding.text for finding in examination.findings), f"no response within {_LOOK_S:g} s")


@contextmanager
def _settings_file(option: str, text: str | None) -> Iterator[list[str]]:
    """Yield the arguments with a file that has this text, none without a text.

    A file, because settings have the key, and all users of a machine can read the command lines of its processes.
    """
    if text is None:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", prefix="dragoman-run-", suffix=".json") as file:
        file.write(text)
        file.flush()
        yield [option, file.name]


def _fetch_lists(settings: Settings) -> ModelLists:
    return fetch_lists(settings, [upstream for upstream in settings.upstreams if can_list(upstream)])


@contextmanager
def _log(file: str | None) -> Iterator[str]:
    """Yield the file for the log. A temporary one is removed if nothing was logged, else its name is printed."""
    if file is not None:
        try:
            open(file, "ab").close()
        except OSError as error:
            exit_with(USAGE_ERROR, f"cannot write the log {file}: {error.strerror}")
        yield file
        return
    number, name = tempfile.mkstemp(prefix="dragoman-run-", suffix=".log")
    os.close(number)
    log = Path(name)
    try:
        yield name
    finally:
        if log.stat().st_size:
            click.echo(f"dragoman: the gateway logged warnings or errors: {log}", err=True)
        else:
            log.unlink()
