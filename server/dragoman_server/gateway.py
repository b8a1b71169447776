"""What lives as long as the application: settings, the ways to upstreams, the stores."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from dragoman import REGISTRY, ProtocolSpec, UpstreamSpec

from .access import keyring_of
from .exchange import Door
from .grammar import checker
from .settings import SIMULATOR, ServerSettings, Settings
from .simulator import SimulatedUpstream
from .state.memory import MemoryResponseStore
from .state.responses import Limits, ResponseStore
from .state.sqlite import SQLiteResponseStore
from .thoughts import ThoughtStore
from .upstream import UpstreamClient


class Gateway:
    """
    responses: where answers are kept, None for nowhere.
    keyring: who may come in.
    thoughts: reasoning for clients that do not send it back, None for none.
    check_input: judges what models write for tools with a grammar, None where nobody does.
    """

    def __init__(
        self,
        settings: Settings,
        client: UpstreamClient | None = None,
        protocols: Mapping[str, ProtocolSpec] = REGISTRY,
    ) -> None:
        self.settings = settings
        self.protocols = protocols
        self.upstreams = {name: spec for name, spec in protocols.items() if isinstance(spec, UpstreamSpec)}
        self.client = client or UpstreamClient()
        self.simulator = SimulatedUpstream()
        self.responses = _response_store(settings.server)
        self.keyring = keyring_of(settings)
        kept = settings.server.reasoning_store_bytes
        self.thoughts = ThoughtStore(kept) if kept else None
        self.check_input = checker() if settings.server.check_grammars else None
        self.ready = False

    def door(self, upstream: str) -> Door:
        """Where requests to the upstream of this name go out."""
        return self.simulator if upstream == SIMULATOR else self.client

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time in which requests can be served: connections and stores are open in this block."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.client)
            if self.responses is not None:
                await stack.enter_async_context(self.responses)
            self.ready = True
            try:
                yield
            finally:
                self.ready = False


def _response_store(server: ServerSettings) -> ResponseStore | None:
    limits = Limits(server.response_store_max_bytes, int(server.response_store_max_age_s))
    if server.response_store == "memory":
        return MemoryResponseStore(limits)
    if server.response_store == "sqlite":
        if server.response_store_path is None:
            raise ValueError("response_store_path is needed for the response store sqlite")
        return SQLiteResponseStore(server.response_store_path, limits)
    return None
