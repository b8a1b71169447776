"""Blocks without a neutral form, which are kept whole: their rows in request_in.txt name each type of the protocol."""

from core import rows
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities


def test_opaque_parts_are_written_unchanged() -> None:
    path = rows.TESTS / "sansio" / "anthropic_messages/request_in.txt"
    bodies = [
        decode(line.encode())
        for row in rows.rows_of(path, {})
        if row.heads[:1] == ["# an opaque part has the block and its text"]
        for line in row.inputs
    ]
    assert len(bodies) > 30
    for body in bodies:
        ledger = Ledger()
        written = decode(encode(SPEC.write_request(read_same_protocol(SPEC, body), Capabilities(), ledger)))
        assert (written["messages"], len(ledger)) == (body["messages"], 0)
