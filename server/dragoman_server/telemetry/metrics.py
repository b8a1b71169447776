"""Count requests for Prometheus.

METRICS is the table of all metrics. A new one also has its line in Metrics.count() or set_states(). OpenTelemetry's are
in `semconv`. The counters are prometheus-client's. Where several worker processes serve one address, each writes its
counters to files of a directory that they share, and whichever of them is scraped returns the sums: see
metrics_directory().

Labels have few values. The names of models come from the configuration and from what upstreams list, never from
clients, and each metric has a largest number of label sets.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman_server import __version__
from dragoman_server.log import RequestRecord
from dragoman_server.platform.extras import missing_extra
from dragoman_server.platform.shared_directory import shared_directory
from dragoman_server.policy.health import INITIAL_HEALTH, AccountState, Health
from dragoman_server.settings import SIMULATOR, Settings
from dragoman_server.settings.patterns import WILDCARD, targets_of
from dragoman_server.simulator import MODELS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_log = logging.getLogger("dragoman.metrics")

# Label sets of one metric in one process. A gateway with 20 upstreams, 10 models of each and 5 keys has some thousand.
# A histogram has 16 lines for each, so this many are 5 MB in a scrape.
MAX_LABEL_SETS = 2000

# The value of a label for names that are not configured, and of all labels beyond MAX_LABEL_SETS.
OTHER = "other"

# Where prometheus-client finds the files that the workers share.
_DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_DIRECTORY_PREFIX = "dragoman-metrics-"

# Seconds: from a cached response of a local model to an agent's longest turn.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
# An agent's turn has nearly all of its prompt cached, or next to nothing.
_RATIO_BUCKETS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


class MetricKind(Enum):
    """The types of Prometheus that are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSpec(msgspec.Struct, frozen=True, eq=False):
    """One metric.

    Attributes:
        over_workers: How the values that several workers have of a gauge become one, in prometheus-client's words.
        buckets: The upper bounds of a histogram's.
    """

    kind: MetricKind
    name: str
    help: str
    labels: tuple[str, ...] = ()
    over_workers: str = ""
    buckets: tuple[float, ...] = BUCKETS


_counter = partial(MetricSpec, MetricKind.COUNTER)
_gauge = partial(MetricSpec, MetricKind.GAUGE)
_histogram = partial(MetricSpec, MetricKind.HISTOGRAM)

_DESTINATION = ("upstream", "model")

REQUESTS = _counter(
    "dragoman_requests_total",
    "Requests that have ended; status is the class of the response's, 2xx",
    ("protocol", *_DESTINATION, "key", "status", "outcome", "error"),
)
DURATION = _histogram(
    "dragoman_request_duration_seconds",
    "Time from a request's head to the end of its response, of requests for an upstream",
    ("protocol", *_DESTINATION, "stream"),
)
FIRST_BYTE = _histogram(
    "dragoman_time_to_first_byte_seconds",
    "Time from a planned request to the first byte of content of its response, of requests that completed",
    ("protocol", *_DESTINATION, "stream"),
)
ATTEMPTS = _counter(
    "dragoman_attempts_total",
    "Requests that were sent to upstreams: one for each account that was tried",
    ("upstream", "account", "outcome", "error"),
)
TOKENS = _counter(
    "dragoman_tokens_total",
    "Tokens that were reported or estimated; cached and cache_write are parts of input, reasoning of output",
    (*_DESTINATION, "key", "type"),
)
CACHED_INPUT = _histogram(
    "dragoman_cached_input_ratio",
    "Share of the input tokens that came from a prompt cache, of requests whose upstream reported it",
    _DESTINATION,
    buckets=_RATIO_BUCKETS,
)
COST = _counter(
    "dragoman_cost_usd_total",
    "Cost of requests at the configured prices, in US dollars",
    (*_DESTINATION, "key"),
)
LOSSES = _counter(
    "dragoman_losses_total",
    "Losses that translations recorded in the ledger",
    ("protocol", "upstream", "code"),
)
OPEN_REQUESTS = _gauge("dragoman_open_requests", "Requests that are being served", over_workers="livesum")
OPEN_STREAMS = _gauge("dragoman_open_streams", "Streamed responses among them", over_workers="livesum")
ACCOUNT_STATE = _gauge(
    "dragoman_account_state",
    "1 for the state that an account is in, 0 for the others",
    ("upstream", "account", "state"),
)
ACCOUNT_REMAINING = _gauge(
    "dragoman_account_remaining_ratio",
    "Share of its rate limit, or of its money, that an account has left, if it is known",
    ("upstream", "account"),
)
STORE_UP = _gauge("dragoman_account_store_up", "1 if the scraped process can reach the account store, else 0")
BUDGET_USED = _gauge(
    "dragoman_budget_used_ratio",
    "Share of a budget that was spent, or is reserved for open requests, in this period; holder is client key or group",
    ("holder", "name"),
)
LOOP_STALLS = _counter(
    "dragoman_loop_stalls_total",
    "Times when an event loop did not run for more than a second, and all its requests waited",
)
WORKERS = _gauge("dragoman_workers", "Processes that serve requests", over_workers="livesum")
BUILD = _gauge(
    "dragoman_build_info",
    "Always 1; the labels are the gateway's version and its event loop",
    ("version", "backend"),
    over_workers="livemax",
)

METRICS = (
    REQUESTS, DURATION, FIRST_BYTE, ATTEMPTS, TOKENS, CACHED_INPUT, COST, LOSSES, OPEN_REQUESTS, OPEN_STREAMS,
    ACCOUNT_STATE, ACCOUNT_REMAINING, STORE_UP, BUDGET_USED, LOOP_STALLS, WORKERS, BUILD,
)  # fmt: skip

# Those that are read when a scrape comes: see Metrics.set_states().
_STATES = (ACCOUNT_STATE, ACCOUNT_REMAINING, STORE_UP, BUDGET_USED)

# The fields of a record with numbers of tokens, by the label `type`.
_TOKEN_FIELDS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}


def exposes_metrics(settings: Settings) -> bool:
    """True if there is a key that /metrics accepts, and the extra is installed."""
    server = settings.server
    return (server.metrics_key is not None or server.admin_key is not None) and missing_extra(
        "metrics"
    ) is None


# Names of upstreams' models, by upstream.
ModelNames = Mapping[str, Collection[str]]


class KnownModels:
    """The models that may be named in metrics: of the configuration, of the simulator, and of upstreams' lists."""

    def __init__(self) -> None:
        self._configured: dict[str, set[str]] = {}
        self._listed: ModelNames = {}

    def configure(self, settings: Settings, listed: ModelNames) -> None:
        """Use the names of this configuration from now on. listed: what upstreams list, which may grow."""
        self._listed = listed
        configured: dict[str, set[str]] = {SIMULATOR: set(MODELS)}
        for upstream in settings.upstreams:
            configured[upstream.name] = {*upstream.models, *filter(None, [upstream.default_model])}
        for chain in settings.models.values():
            for destination in targets_of(chain):
                name, _, model = destination.partition("/")
                if WILDCARD not in model:
                    configured.setdefault(name, set()).add(model)
        self._configured = configured

    def label(self, upstream: str | None, model: str | None) -> str:
        """Return the model's name, OTHER for one that is not known, "" for none."""
        if upstream is None or model is None:
            return ""
        known = model in self._configured.get(upstream, ()) or model in self._listed.get(upstream, ())
        return model if known else OTHER


class _Family(dict[tuple[str, ...], Any]):
    """The counters of a metric by the values of their labels, as many as are allowed."""

    __slots__ = ("_metric", "_spec")

    def __init__(self, spec: MetricSpec, metric: Any) -> None:
        self._spec = spec
        self._metric = metric

    def __missing__(self, labels: tuple[str, ...]) -> Any:
        if len(self) >= MAX_LABEL_SETS:
            other = (OTHER,) * len(labels)
            if other in self:
                return self[other]
            _log.warning(
                "the metric %s has %d label sets; what has further ones is counted as %r",
                self._spec.name,
                MAX_LABEL_SETS,
                OTHER,
            )
            labels = other
        counter = self[labels] = self._metric.labels(*labels) if labels else self._metric
        return counter


class Metrics:
    """The metrics of this process. Needs the extra.

    Args:
        backend: the event loop.
        known: the models that may be named.
    """

    def __init__(self, backend: str, known: KnownModels) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        directory = os.environ.get(_DIRECTORY_VARIABLE)
        self._known = known
        self._registry = CollectorRegistry()
        registry = self._registry if directory is None else None
        _register_collectors(self._registry, directory)
        self._states: Iterable[Metric] = ()
        self._registry.register(self)

        def make(spec: MetricSpec) -> Any:
            if spec.kind is MetricKind.COUNTER:
                return Counter(spec.name, spec.help, spec.labels, registry=registry)
            if spec.kind is MetricKind.HISTOGRAM:
                return Histogram(spec.name, spec.help, spec.labels, registry=registry, buckets=spec.buckets)
            mode: Any = spec.over_workers
            return Gauge(spec.name, spec.help, spec.labels, registry=registry, multiprocess_mode=mode)

        self._families = families = {
            spec: _Family(spec, make(spec)) for spec in METRICS if spec not in _STATES
        }
        self.open_requests = families[OPEN_REQUESTS][()]
        self.open_streams = families[OPEN_STREAMS][()]
        self.loop_stalls = families[LOOP_STALLS][()]
        families[WORKERS][()].set(1)
        families[BUILD][__version__, backend].set(1)

    def count(self, record: RequestRecord) -> None:
        """Count a request that has ended."""
        upstream, key = record.upstream or "", record.client_key or ""
        model = self._known.label(record.upstream, record.upstream_model)
        families = self._families
        status = "" if record.status is None else f"{record.status // 100}xx"
        families[REQUESTS][
            record.protocol, upstream, model, key, status, record.outcome, record.error_kind or ""
        ].inc()
        if record.attempts:
            self._count_attempts(record)
            where = record.protocol, upstream, model, "true" if record.stream else "false"
            if record.duration_s is not None:
                families[DURATION][where].observe(record.duration_s)
            first = record.first_content_s or record.first_byte_s
            if first is not None and record.outcome == "completed":
                families[FIRST_BYTE][where].observe(first)
            # A count of tokens has no output, and uses none.
            for kind, name in _TOKEN_FIELDS.items() if record.output_tokens is not None else ():
                if tokens := getattr(record, name):
                    families[TOKENS][upstream, model, key, kind].inc(tokens)
            if record.cached_share is not None:
                families[CACHED_INPUT][upstream, model].observe(record.cached_share)
            if record.cost_usd:
                families[COST][upstream, model, key].inc(record.cost_usd)
        for loss in record.losses:
            families[LOSSES][record.protocol, upstream, loss.partition(" ")[0]].inc()

    def _count_attempts(self, record: RequestRecord) -> None:
        ended = [(str(failure["account"]), "failed", str(failure["kind"])) for failure in record.failures]
        if record.hedge is not None and record.hedge["outcome"] == "cancelled":
            ended.append((str(record.hedge["account"]), "cancelled", ""))
        if record.account is not None and (record.attempts or 0) > len(ended):
            outcome = record.outcome if record.outcome in ("completed", "failed") else "cancelled"
            error = (record.error_kind or "") if outcome == "failed" else ""
            ended.append((record.account, outcome, error))
        for account, outcome, error in ended:
            upstream, _, name = account.partition("/")
            self._families[ATTEMPTS][upstream, name, outcome, error].inc()

    def set_states(
        self,
        accounts: Iterable[str],
        health: Mapping[str, Health],
        now: float,
        *,
        store_up: bool,
        budgets: Mapping[tuple[str, str], float],
    ) -> None:
        """Set the state of the accounts and budgets.

        accounts: their ids, as `upstream/account`. health: see AccountStore. budgets: the used share of each, by the
        kind and name of its holder.
        """
        from prometheus_client.core import GaugeMetricFamily

        states, remaining, store, used = (
            GaugeMetricFamily(spec.name, spec.help, labels=spec.labels) for spec in _STATES
        )
        for id in accounts:
            upstream, _, name = id.partition("/")
            known = health.get(id, INITIAL_HEALTH)
            current = known.state(now)
            for state in AccountState:
                states.add_metric((upstream, name, state.value), float(state is current))
            if known.remaining is not None:
                remaining.add_metric((upstream, name), known.remaining)
        store.add_metric((), float(store_up))
        for holder, share in budgets.items():
            used.add_metric(holder, share)
        self._states = (states, remaining, store, used)

    def collect(self) -> "Iterable[Metric]":
        """Return the states: values of the process that is scraped, which no counter includes."""
        return self._states

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics as text, and its content type. Slow: call it in a thread. accept: the request's header."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _register_collectors(registry: "CollectorRegistry", directory: str | None) -> None:
    """Add metrics of the process, or of all processes that share the directory."""
    from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

    PlatformCollector(registry)
    if directory is None:
        GCCollector(registry)
        ProcessCollector(registry=registry)
    else:
        registry.register(_Workers(Path(directory)))


class _Workers:
    """The sums of all workers, and the figures of each process with the label pid."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def collect(self) -> "Iterable[Metric]":
        from prometheus_client.multiprocess import MultiProcessCollector

        # A file is empty for a moment, or for ever if its worker dies then, and prometheus-client 0.26 cannot read such
        # a file -- https://github.com/prometheus/client_python/issues/1199
        files = [str(file) for file in self._directory.glob("*.db") if _size(file)]
        yield from MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        yield from self._processes()

    def _processes(self) -> "Iterable[Metric]":
        from prometheus_client import ProcessCollector
        from prometheus_client.core import Metric

        merged: dict[str, Metric] = {}
        # Such files of dead workers are removed: see metrics_directory().
        for file in sorted(self._directory.glob("gauge_livesum_*.db")):
            pid = file.stem.rpartition("_")[2]
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                family = merged.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                for sample in metric.samples:
                    family.add_sample(sample.name, {**sample.labels, "pid": pid}, sample.value)
        return merged.values()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def metrics_directory(settings: Settings) -> AbstractContextManager[Callable[[int], None]]:
    """Let the processes that are started inside of this block count together, if /metrics is on.

    See shared_directory(). Counters of a process that has ended stay, because sums must not become smaller.
    """
    if not exposes_metrics(settings):
        return nullcontext(lambda pid: None)
    return shared_directory(_DIRECTORY_PREFIX, _DIRECTORY_VARIABLE, lambda pid: f"gauge_live*_{pid}.db")
