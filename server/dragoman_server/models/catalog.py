"""Collect all model names that the gateway serves: aliases, configured names, and what the upstreams list.

Callers get the known names immediately. A list that is too old is fetched again in the background, by one task per
upstream; until it has arrived the old one is used. Only the first fetch of an upstream's list is waited for, and not
for long. An upstream that fails keeps its last list, and the log has one line about it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
import msgspec
from msgspec.structs import replace

from dragoman import UPSTREAMS
from dragoman.codec import UpstreamSpec
from dragoman_server.models.info import ModelInfo
from dragoman_server.models.listing import ModelListError, can_list, fetch_models
from dragoman_server.models.routes import ListedModels, UnknownModel, deciding_upstream, resolve_chain
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.settings import SIMULATOR, AccountSettings, Settings, UpstreamSettings
from dragoman_server.settings.server import FULL, PLAIN
from dragoman_server.simulator import MODELS
from dragoman_server.upstream.sender import UpstreamSender

LOG = logging.getLogger("dragoman.models")

# Claude Code gives up on a list after 3 s.
FIRST_WAIT_S = 2.0
# A list may take this long in the background.
REFRESH_S = 30.0
# Seconds after which a failed upstream is tried again, if a list is needed.
RETRY_S = 30.0

# What a model counts for off_loop(). Upstreams list up to 5000, and each of their names takes 15 us.
MODEL_BYTES = 100

# The owner of a name without an upstream.
_NO_OWNER = "dragoman"

# Returns the accounts with which an upstream's list can be fetched, the best first.
AccountsOf = Callable[[UpstreamSettings], Sequence[AccountSettings]]


class CatalogEntry(msgspec.Struct, frozen=True):
    """A name that clients may send.

    Attributes:
        display_name: Its name for people.
        owner: The upstream that it leads to first.
        info: The model's info there, with the smallest limits of all models that it may lead to.
        listed: It is in lists; otherwise it is found only by its name.
    """

    name: str
    display_name: str
    owner: str
    info: ModelInfo
    listed: bool = True


class _UpstreamList(msgspec.Struct, eq=False):
    """One upstream's models, and the state of fetching them.

    Attributes:
        due: When to fetch again.
        first_fetch: When the first fetch began.
        ended: Set when the running fetch has ended, None while none runs.
        tried: A fetch has succeeded or failed.
        failing: The last fetch failed.
    """

    upstream: UpstreamSettings
    models: tuple[ModelInfo, ...] = ()
    due: float = float("-inf")
    first_fetch: float | None = None
    ended: anyio.Event | None = None
    tried: bool = False
    failing: bool = False


class ModelCatalog(BackgroundTaskGroup):
    """The names of all models. Outside of running() nothing is fetched, and only the settings count.

    Args:
        sender_for: returns the sender for the upstream of a name.
        accounts: see AccountsOf.
        specs: see Gateway.upstreams.

    Attributes:
        listed: See ListedModels; only lists that are known.
    """

    def __init__(
        self,
        settings: Settings,
        sender_for: Callable[[str], UpstreamSender],
        accounts: AccountsOf | None = None,
        specs: Mapping[str, UpstreamSpec] = UPSTREAMS,
    ) -> None:
        self._settings = settings
        self._sender_for = sender_for
        self._specs = specs
        self._accounts = accounts or settings.accounts_of
        self._lists = [
            _UpstreamList(upstream) for upstream in settings.upstreams if can_list(upstream, specs)
        ]
        self._entries: dict[str, CatalogEntry] | None = None
        self._building = anyio.Lock()
        self.listed: dict[str, Mapping[str, ModelInfo]] = {}

    def take_over(self, previous: "ModelCatalog") -> None:
        """Use the lists from before a reload of those upstreams that have not changed."""
        before = {upstream_list.upstream.name: upstream_list for upstream_list in previous._lists}
        for each in self._lists:
            known = before.get(each.upstream.name)
            if known is None or not known.tried or known.upstream != each.upstream:
                continue
            each.models, each.tried, each.failing = known.models, True, known.failing
            each.due, each.first_fetch = known.due, known.first_fetch
            if each.upstream.name in previous.listed:
                self.listed[each.upstream.name] = previous.listed[each.upstream.name]

    async def entries(self) -> Mapping[str, CatalogEntry]:
        """Return all names, in the order of lists. Takes FIRST_WAIT_S at most."""
        await self._ensure(self._lists)
        async with self._building:
            while (entries := self._entries) is None:
                known = {upstream_list.upstream.name: upstream_list.models for upstream_list in self._lists}
                size = MODEL_BYTES * sum(map(len, known.values()))
                entries = await off_loop(size, build_entries, self._settings, known)
                if known == {each.upstream.name: each.models for each in self._lists}:
                    self._entries = entries
        return entries

    async def ensure_list_for(self, model: str) -> None:
        """Fetch the list that decides where a name leads, if there is one. Takes FIRST_WAIT_S at most."""
        upstream = deciding_upstream(self._settings, model)
        if upstream is not None:
            await self._ensure([each for each in self._lists if each.upstream is upstream])

    async def _ensure(self, lists: Sequence[_UpstreamList]) -> None:
        """Start to fetch each list that is due. Wait only for one that was never fetched."""
        if self._tasks is None:
            return
        now = anyio.current_time()
        for each in lists:
            if each.ended is None and now >= each.due:
                each.ended = anyio.Event()
                each.first_fetch = now if each.first_fetch is None else each.first_fetch
                self._tasks.start_soon(
                    self._refresh, each, each.ended, name=f"models of {each.upstream.name}"
                )
        for each in lists:
            if not each.tried and each.ended is not None and each.first_fetch is not None:
                # From the start of the first fetch, so that no client waits twice for one slow upstream.
                with anyio.CancelScope(deadline=each.first_fetch + FIRST_WAIT_S):
                    await each.ended.wait()

    async def _refresh(self, upstream_list: _UpstreamList, ended: anyio.Event) -> None:
        upstream = upstream_list.upstream
        next_in = self._settings.server.model_list_ttl_s
        try:
            with anyio.fail_after(REFRESH_S):
                sender, accounts = self._sender_for(upstream.name), self._accounts(upstream)
                models = await fetch_models(sender, upstream, accounts, self._specs)
        except (ModelListError, TimeoutError) as error:
            if not upstream_list.failing:
                LOG.warning(
                    "the models of upstream %s cannot be listed: %s; if it has no list, set model_list = false",
                    upstream.name,
                    str(error) or f"no response within {REFRESH_S:g} s",
                )
            upstream_list.failing = True
            next_in = min(next_in, RETRY_S)
        except Exception:  # a bug: it must not end the gateway, whose group this task is in
            LOG.exception("the models of upstream %s cannot be listed", upstream.name)
            next_in = min(next_in, RETRY_S)
        else:
            if upstream_list.failing:
                LOG.info("the models of upstream %s are listed again", upstream.name)
            upstream_list.models, upstream_list.failing = models, False
            listed = {model.id: model for model in models}
            # Else find_destinations() would compare all of it for each request.
            if listed != self.listed.get(upstream.name):
                self.listed[upstream.name] = listed
                self._settings.resolved.clear()  # what was found by the list before
            self._entries = None
        finally:
            upstream_list.tried = True
            upstream_list.ended = None
            upstream_list.due = anyio.current_time() + next_in
            ended.set()


def build_entries(settings: Settings, lists: Mapping[str, Sequence[ModelInfo]]) -> dict[str, CatalogEntry]:
    """Return every name once: aliases, then the models of each upstream, then the simulator's.

    lists: by the upstream's name.
    """
    infos = {name: {model.id: model for model in models} for name, models in lists.items()}
    found = {name: _entry(settings, infos, name) for name in settings.models if "*" not in name}
    for upstream in settings.upstreams:
        for model in dict.fromkeys([*upstream.models, *infos.get(upstream.name, ())]):
            for entry in _entries_of(settings, infos, upstream.name, model):
                found.setdefault(entry.name, entry)
    if settings.server.offers_simulator:
        for model in MODELS:
            name = f"{SIMULATOR}/{model}"
            entry = _entry(settings, infos, name)
            found.setdefault(name, replace(entry, listed=settings.lists_simulator))
    return found


def _entries_of(settings: Settings, infos: ListedModels, upstream: str, model: str) -> Iterator[CatalogEntry]:
    """Give the entries of a model: its own name if it leads there, and `upstream/model`. A setting lists them."""
    form = settings.server.model_names
    plain = _entry(settings, infos, model)
    leads_here = (plain.owner, plain.info.id) == (upstream, model)
    if leads_here:
        yield replace(plain, display_name=plain.info.display_name or model, listed=form != FULL)
    full = _entry(settings, infos, f"{upstream}/{model}")
    if full.info.display_name is not None:
        full = replace(full, display_name=f"{full.info.display_name} ({upstream})")
    yield replace(full, listed=form != PLAIN or not leads_here)


def _entry(settings: Settings, infos: ListedModels, name: str) -> CatalogEntry:
    routes = resolve_chain(settings, None, name, infos)
    if isinstance(routes, UnknownModel):
        return CatalogEntry(name, name, _NO_OWNER, ModelInfo(""))
    known = [
        infos.get(route.upstream, {}).get(route.upstream_model) or ModelInfo(route.upstream_model)
        for route in routes
    ]
    # A conversation may go to any of them, so it must fit into all.
    context = min((info.context for info in known if info.context is not None), default=None)
    output = min((info.output for info in known if info.output is not None), default=None)
    return CatalogEntry(name, name, routes[0].upstream, replace(known[0], context=context, output=output))
