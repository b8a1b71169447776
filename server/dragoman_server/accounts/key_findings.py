"""Find what has requests with client keys refused, before a developer does: in a configuration without errors."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dragoman_server.accounts.prices import Prices
from dragoman_server.models.routes import UnknownModel, model_ids, resolve_chain
from dragoman_server.settings import SIMULATOR, ClientKey, Settings
from dragoman_server.settings.problems import CheckFinding

# Names in one text: some help, hundreds do not.
_MAX_NAMES = 10


def key_findings(
    settings: Settings, keys: Sequence[ClientKey], *, all_known: bool = True
) -> Iterator[CheckFinding]:
    """Yield names in both places, groups that are gone, models without a price that a budget forbids, a lack of keys.

    Args:
        settings: with the keys of the configuration.
        keys: those, and those of the account store.
        all_known: False if those of the account store may not be among the keys.
    """
    if all_known and settings.server.stored_keys and not keys:
        text = "there is none, so every request is refused"
        yield CheckFinding.warning("keys", "client keys", text, "dragoman keys add NAME --store")
    if twice := [name for name, count in Counter(key.name for key in keys).items() if count > 1]:
        text = f"are also in the account store, where they are refused: {_some(twice)}"
        fix = "remove them from the file, or make others by other names"
        yield CheckFinding.warning("keys", "client keys of the configuration", text, fix)
    groups = settings.groups_by_name
    without: dict[str, list[str]] = {}
    for key in keys:
        if key.group is not None and key.group not in groups:
            without.setdefault(key.group, []).append(key.name)
    for group, names in without.items():
        text = f"is not configured, so its client keys in the account store are refused: {_some(names)}"
        fix = f'add [[groups]] with name = "{group}", or revoke the keys and make others'
        yield CheckFinding.warning("keys", f"group {group}", text, fix)
    allowing = _with_budget(settings, keys)
    unpriced = [
        name
        for name in (_unpriced(settings) if allowing else ())
        if any(may_use(name) for may_use in allowing)
    ]
    if unpriced:
        text = f"have no price, so client keys with a budget are refused: {_some(unpriced)}"
        yield CheckFinding.warning("prices", "models", text, "add [[prices]] for them")


def _some(names: Sequence[str]) -> str:
    left_out = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {left_out} more" if left_out > 0 else "")


def _with_budget(settings: Settings, keys: Sequence[ClientKey]) -> list[Callable[[str], bool]]:
    """Return what says if a model may be used: a function for each kind of keys and groups with a budget."""
    groups = settings.groups_by_name
    found: dict[object, Callable[[str], bool]] = {
        each.name: each.allows for each in settings.groups if each.budget is not None
    }
    for key in keys:
        if key.budget is not None:
            # Thousands of keys have few lists of models.
            found.setdefault(
                (key.models, key.group),
                key.in_group_of(groups).may_use if key.group in groups else key.allows,
            )
    return list(found.values())


def _unpriced(settings: Settings) -> Iterator[str]:
    """Yield the names of models that lead to one without a price."""
    prices = Prices(settings.prices, settings.upstreams)
    defaults = [f"{each.name}/{each.default_model}" for each in settings.upstreams if each.default_model]
    for name in dict.fromkeys([*model_ids(settings), *defaults]):
        chain = resolve_chain(settings, None, name)
        if isinstance(chain, UnknownModel) or (
            name.startswith(f"{SIMULATOR}/") and not settings.lists_simulator
        ):
            continue
        if not all(prices.find(name, route.upstream, route.upstream_model) for route in chain):
            yield name
