"""The fidelity matrix: what happens to every field, block, item and part in the translators.

Each row is a probe, a small valid document that contains what the row is about. `run` translates it with and without
that and `judge` compares the results; `page` prints them and `summary` groups them by topic. Nothing here states what
is expected: the page is what the code does, and a test fails if a value is lost without an entry in the ledger.
"""
