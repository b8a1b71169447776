"""The fidelity matrix: what becomes of every field, block, item and part on its way through the translators.

Strategy: each row is a probe, a small valid document that holds what the row is about. `run` translates it with
the product, with and without that, and says what became of it; `page` prints the answers. Nobody writes down what
is expected: the page is what the code does, and a test fails where a value gets lost without a word.
"""
