"""Framing, order and sums of what a client gets, by the product's own judge.

`dragoman.lint` imports no reader and no writer, so it may judge them. The vendors' SDKs check the types as
well, see `oracle.types`.
"""

from dragoman import lint

# Rules about the shapes of values, which `oracle.types` has from the vendors.
_SHAPES = ("-required", "-nullable", "-type", "-value", "-unknown-member", "-unknown-type")


def check_order(protocol: str, stream: bytes, *, include_usage: bool = False) -> list[str]:
    """Problems of a stream beside its types. `include_usage` is what a Chat client requested."""
    return _problems(lint.check_stream(protocol, stream, usage_requested=include_usage))


def _problems(report: lint.Report) -> list[str]:
    return [str(each) for each in report.findings if not each.rule.id.endswith(_SHAPES)]
