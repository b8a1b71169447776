"""Start a gateway for one command, or use one that runs, and choose the models that the command gets."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import click

from dragoman import UPSTREAMS
from dragoman_server.cli.child import run_child
from dragoman_server.cli.clients import (
    ANY_KEY,
    Client,
    ClientTarget,
    options_for,
    shell_lines,
    variables_for,
)
from dragoman_server.cli.model_lists import (
    ModelInfos,
    ModelLists,
    example_model,
    fetch_lists,
    info_at,
    infos_of,
    known_models,
    why_unknown,
)
from dragoman_server.cli.options import USAGE_ERROR, exit_with, load_or_exit
from dragoman_server.cli.private_gateway import HOST, private_settings, starting
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.listing import can_list
from dragoman_server.models.routes import (
    ModelRoute,
    UnknownModel,
    deciding_upstream,
    filter_chat_models,
    resolve,
)
from dragoman_server.serving.sockets import BoundAddress, StartupError
from dragoman_server.settings import Settings, UpstreamSettings
from dragoman_server.settings.patterns import WILDCARD, matches
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.server import KEY_VARIABLE


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that gets a gateway.

    gateway: the URL of one that runs, None to start one. model, small_model: None if the user chooses none.
    """

    client: Client
    gateway: str | None
    config_file: str | None
    model: str | None
    small_model: str | None

    def shell_lines(self, command: str, environ: Mapping[str, str]) -> Iterator[str]:
        """Return the lines for a shell with which `command` uses a gateway that runs. Raises StartupError."""
        return shell_lines(command, self.client, self._running(), environ)

    def run(self, program: str, words: Sequence[str], log_file: str | None) -> int:
        """Run the command and return its exit status. Raises StartupError, CannotRun.

        words: the command as the user wrote it. log_file: for the log of a gateway that is started.
        """
        if self.gateway is not None:
            return self._run(program, words, self._running())
        loaded = load_or_exit(self.config_file, {"host": HOST, "port": "0", "workers": "1"})
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
        settings = private_settings(loaded.settings)
        if not settings.upstreams:
            click.echo(
                "warning: there is no upstream: the models are those of the built-in simulator", err=True
            )
        if log_file is None and settings.server.log_level != "error":
            settings = replace(settings, server=replace(settings.server, log_level="warning"))
        with _log(log_file) as log, starting(settings, log) as own:
            target = self._choose(ClientTarget(own.url, own.key), settings, _fetch_lists(settings))
            own.wait_until_ready()
            status = self._run(program, words, target)
            if own.has_ended:
                click.echo("dragoman: the gateway ended before the command did", err=True)
        return status

    def _run(self, program: str, words: Sequence[str], target: ClientTarget) -> int:
        changes = variables_for(self.client, target, os.environ)
        environ = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
        return run_child(program, [words[0], *options_for(self.client, target), *words[1:]], environ)

    def _running(self) -> ClientTarget:
        """Return how to use a running gateway: the one at the user's URL, else the one with this configuration."""
        key = os.environ.get(KEY_VARIABLE) or ANY_KEY
        if self.gateway is not None:
            return self._choose_listed(ClientTarget(_root(self.gateway), key))
        settings = load_or_exit(self.config_file, {}).settings
        server = settings.server
        address = BoundAddress.of(server, server.host, server.port)
        if settings.client_keys and key == ANY_KEY:
            click.echo(f"warning: the gateway needs a client key: set {KEY_VARIABLE}", err=True)
        return self._choose(ClientTarget(address.local_url, key), settings, _fetch_lists(settings))

    def _choose(self, target: ClientTarget, settings: Settings, lists: ModelLists) -> ClientTarget:
        """Return the target with models of a gateway that has these settings. Exits if none is known."""
        infos = infos_of(lists)
        target = replace(target, models=known_models(settings, infos))
        model = self.model
        if model is None:
            own = self.client.own_models
            if own and all(_is_routed(settings, name) for name in own):
                context = _smallest_context(settings, infos, own)
                return replace(target, small_model=self.small_model, context=context)
            model, _ = example_model(settings, lists)
        if model is None:
            exit_with(
                USAGE_ERROR,
                f"{why_unknown(settings, lists)}: choose one with --model NAME",
            )
        for name in filter(None, (model, self.small_model)):
            if isinstance(unknown := resolve(settings, None, name, infos), UnknownModel):
                exit_with(USAGE_ERROR, f"{unknown.message}")
        route = resolve(settings, None, model, infos)
        assert not isinstance(route, UnknownModel)
        return self._with_model(target, model, info_at(infos, route))

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
        context, output = (None, None) if info is None else (info.context, info.output)
        small_model = self.small_model or model
        return replace(target, model=model, small_model=small_model, context=context, output=output)


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


def _smallest_context(settings: Settings, infos: ModelInfos, names: Sequence[str]) -> int | None:
    """Return the smallest context window of the models that names of a client stand for, None if none is known.

    A client that gets the model of a name itself has its own figure.
    """
    contexts = []
    for name in names:
        route = resolve(settings, None, name, infos)
        if isinstance(route, ModelRoute) and route.upstream_model != name:
            info = info_at(infos, route)
            contexts += [info.context] if info is not None and info.context is not None else []
    return min(contexts, default=None)


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
