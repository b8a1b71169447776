"""Settings of clients: the tables `[[client_keys]]` and `[[groups]]`, which both hold limits, and `[[aws_keys]]`."""

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from dragoman_server.settings.fields import Dollars, Name, SettingKind
from dragoman_server.settings.patterns import PatternTable
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.upstreams import LOSS_POLICIES, Rate, TokenRate


def amount_text(dollars: float) -> str:
    """Return an amount of money to a millionth of a dollar, without an exponent: 500, 2.5, 0.00001."""
    return f"{dollars:.6f}".rstrip("0").removesuffix(".")


class LimitHolder(Struct, frozen=True, kw_only=True, dict=True):
    """What has limits: a client key, or a group of them."""

    # What it is, for people.
    kind: ClassVar[str]

    name: str
    models: Annotated[
        tuple[str, ...],
        "models that may be used, by the names that clients send; * matches any text; unset: all",
    ] = ()
    requests_per_minute: Annotated[Rate | None, "largest number of requests a minute"] = None
    tokens_per_minute: Annotated[
        TokenRate | None, "largest number of tokens a minute, of requests and responses"
    ] = None
    budget: Annotated[
        Dollars | None, Meta(ge=0, le=10**9), "most that may be spent in a budget_period, by the prices"
    ] = None
    budget_period: Annotated[
        str, ("day", "month", "total"), "when the budget starts again, in UTC; total: never"
    ] = "month"

    @cached_property
    def _models(self) -> PatternTable[bool]:
        return PatternTable([(pattern, True) for pattern in self.models])

    @property
    def label(self) -> str:
        """Its kind and name, for people."""
        return f"{self.kind} {self.name}"

    @property
    def has_limits(self) -> bool:
        """True if something has to be counted for it."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.budget)
        return any(limit is not None for limit in limits)

    def allows(self, model: str) -> bool:
        """True if it has this name of a model."""
        return not self.models or self._models.first(model) is not None


class Group(LimitHolder, frozen=True, kw_only=True):
    """One `[[groups]]` table. All its keys count together, besides the limits that each of them has."""

    kind = "group"

    name: Annotated[Name, "name for the group of client keys and for errors"]


class ClientKey(LimitHolder, frozen=True, kw_only=True):
    """One `[[client_keys]]` table. It has only the hash of the key.

    While a key is rotated it has two, with one set of limits, counters and stored responses.

    Attributes:
        holders: The key, and its group if it has one: a request needs the permission of each.
    """

    kind = "client key"

    name: Annotated[Name, "name of the key's owner in the log"]
    hash: Annotated[str, SettingKind.HASH, "hash of the key, as `dragoman keys add` prints it"]
    group: Annotated[Name | None, "group of [[groups]] whose limits apply too; unset: none"] = None
    expires: Annotated[
        datetime | None, "time at which it becomes invalid; a date is its beginning in UTC; unset: never"
    ] = None
    disabled: Annotated[bool, "refuse requests with it; its counters and limits stay"] = False
    previous_hash: Annotated[
        str | None, SettingKind.HASH, "hash of the key before it, as `dragoman keys rotate` writes it"
    ] = None
    previous_expires: Annotated[datetime | None, "time at which the key before it becomes invalid"] = None
    loss_policy: Annotated[str | None, LOSS_POLICIES, "overrides the upstream's and the server's"] = None
    may_loosen: Annotated[bool, "may send dragoman-loss-policy: record even where losses are refused"] = False
    _group: Group | None = None

    def in_group_of(self, groups: Mapping[str, Group]) -> "ClientKey":
        """Return the key with the limits of its group. Raises ValueError if that is none of these."""
        if self.group is None:
            return self
        if self.group not in groups:
            raise ValueError(f"there is no group {self.group}, which the client key {self.name} is in")
        return replace(self, _group=groups[self.group])

    @property
    def holders(self) -> tuple[LimitHolder, ...]:
        return (self,) if self._group is None else (self, self._group)

    def state(self, now: float, groups: Collection[str]) -> str:
        """Return "active", "expired", "disabled", or "no group" if it is refused because its group is none of these.

        now: seconds since the epoch.
        """
        if self.disabled:
            return "disabled"
        if self.group is not None and self.group not in groups:
            return "no group"
        return "expired" if self.expires is not None and self.expires.timestamp() <= now else "active"

    @property
    def limits_models(self) -> bool:
        """True if it matters which models a request names: they are not all allowed, or need a price."""
        return any(holder.models or holder.budget is not None for holder in self.holders)

    def may_use(self, model: str) -> bool:
        """True if a request with this key may name the model."""
        return all(holder.allows(model) for holder in self.holders)


class AwsKey(Struct, frozen=True, kw_only=True):
    """One `[[aws_keys]]` table: an access key of AWS, with which clients sign. Who verifies that needs the secret."""

    access_key_id: Annotated[str, "id of the access key, as AWS_ACCESS_KEY_ID of clients has it"]
    secret_access_key: Annotated[Secret, "the secret of it, as AWS_SECRET_ACCESS_KEY of clients has it"]
    client_key: Annotated[Name, "name of the client key that signed requests count for"]
