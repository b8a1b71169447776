"""Plain settings, carried by tables.

Strategy: a protocol declares which wire names mean which neutral names; reading, writing and entering losses
are the same for all. A value that needs more than another name has a converter in the writer's table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Param, Request
from dragoman._wire.json import JSON, JSONObject

# Gives the value for the target, or None when it has to be dropped. Enters its own losses.
Converter = Callable[[JSON, str, Ledger], JSON]


def hashed_beyond(limit: int) -> Converter:
    """For names of users, which servers refuse when they are longer. The hash names the same user.

    limit: in characters.
    """

    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if type(value) is not str or len(value) <= limit:
            return value
        import hashlib  # loads OpenSSL: slow to import, and names that need it are rare

        ledger.altered(path, f"longer than {limit} characters: its hash was sent")
        return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()

    return convert


def read_params(body: JSONObject, names: Mapping[str, Param]) -> dict[Param, JSON]:
    """The settings of a body, by neutral name. null means absent in all three protocols.

    Where two wire names mean the same, the one that stands later in `names` wins.
    """
    return {param: body[name] for name, param in names.items() if name in body and body[name] is not None}


def param_paths(names: Mapping[str, Param]) -> dict[Param, str]:
    """For Request.param_paths: compute it once per table."""
    return {param: f"/{name}" for name, param in names.items()}


def write_params(
    request: Request,
    names: Mapping[Param, str],
    converters: Mapping[Param, Converter],
    out: JSONObject,
    ledger: Ledger,
) -> None:
    """Put the request's settings into `out` under the target's names; what has no row goes into the ledger.

    A param with a converter and no name is consumed by its converter (it may put nothing and say why).
    """
    for param, value in request.params.items():
        path = request.param_paths.get(param, f"/{param}")
        convert = converters.get(param)
        if convert is not None:
            value = convert(value, path, ledger)
        name = names.get(param)
        if name is None:
            if convert is None:
                ledger.dropped(path, "the target protocol has no such setting")
        elif value is not None:
            out[name] = value
