"""The settings of prices: the table `[[prices]]`. Which of them is a model's is found in `accounts.prices`."""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman_server.settings.fields import Dollars

TokenPrice = Annotated[Dollars, Meta(ge=0, le=10**6)]


class Price(Struct, frozen=True, kw_only=True):
    """One `[[prices]]` table: US dollars for a million tokens.

    Attributes:
        longer: The price of the same model for more input tokens.
    """

    model: Annotated[
        str, "name that clients send, `upstream/model`, or the upstream's own name; * matches any text"
    ]
    input: Annotated[TokenPrice, "price of a million input tokens"]
    output: Annotated[TokenPrice, "price of a million output tokens"]
    cached_input: Annotated[
        TokenPrice | None, "price of a million input tokens from a prompt cache; unset: as input"
    ] = None
    cache_write: Annotated[
        TokenPrice | None, "price of a million input tokens written to a prompt cache; unset: as input"
    ] = None
    cache_write_1h: Annotated[
        TokenPrice | None, "price of a million of those that are kept for an hour; unset: as cache_write"
    ] = None
    seconds: Annotated[
        TokenPrice,
        "price of a million seconds of audio, where an upstream counts those: 100 is 0.006 a minute",
    ] = 0.0
    search_units: Annotated[
        TokenPrice, "price of a million search units, which Cohere counts for reranking"
    ] = 0.0
    above_tokens: Annotated[
        int,
        Meta(ge=0, le=10**9),
        "applies to requests with more input tokens than this; the lowest table of a model applies to all others",
    ] = 0
    longer: "Price | None" = None
