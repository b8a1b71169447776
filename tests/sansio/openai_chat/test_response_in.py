"""Streams of Chat upstreams, also with members that say nothing. What is read from them is in response_in.txt."""

from core.rows import TESTS, read_response, rows_of


def test_members_without_content_change_nothing() -> None:
    changed = 0
    for row in rows_of(TESTS / "sansio/openai_chat/response_in.txt"):
        lines = [
            line.replace('"delta":{"', '"delta":{"function_call":null,"annotations":null,"')
            for line in row.inputs
            if "function_call" not in line and "annotations" not in line
        ]
        if row.heads and lines != row.inputs and len(lines) == len(row.inputs):
            changed += 1
            noisy = read_response("openai_chat", lines, row.options)
            assert noisy == read_response("openai_chat", row.inputs, row.options)
    assert changed > 100
