"""What requests cost, by the `[[prices]]` of the configuration. Pure.

A price is looked up by all names that a model has: the one that the client sent, `upstream/model`, and the upstream's
own. The first table that fits any of them counts, so an exception stands before the rule.
"""

from collections.abc import Sequence

from dragoman import Usage
from dragoman_server.settings import Price
from dragoman_server.settings.patterns import matches

_MILLION = 1_000_000


def names_of(model: str | None, upstream: str | None, upstream_model: str | None) -> list[str]:
    """The names of one model. model: as the client sent it."""
    own = upstream_model or ""
    return [name for name in (model, f"{upstream}/{own}" if upstream and own else None, own) if name]


def price_of(prices: Sequence[Price], names: Sequence[str]) -> Price | None:
    """The first price that fits one of the names, None when nobody has set one."""
    return next((price for price in prices if any(matches(name, price.model) for name in names)), None)


def cost(price: Price, usage: Usage) -> float:
    """US dollars. What is not known of the usage costs nothing."""
    usage = usage.consistent()
    cached, written = usage.cached or 0, usage.cache_write or 0
    plain = max(0, (usage.input or 0) - cached - written)
    dollars = plain * price.input + (usage.output or 0) * price.output
    dollars += cached * (price.input if price.cached_input is None else price.cached_input)
    dollars += written * (price.input if price.cache_write is None else price.cache_write)
    return dollars / _MILLION
