"""An empty book changes nothing on the way back."""

from dragoman._ir.events import ToolKind
from dragoman._ir.undo import ToolOrigin, Undo


def test_nothing_was_changed_by_default() -> None:
    undo = Undo()
    found = (dict(undo.origins), undo.used_ids, undo.json_tool, undo.stop_sequences)
    assert found == ({}, frozenset(), None, ())
    assert (undo.strip_code_fence, undo.compacts) == (False, False)


def test_an_origin_is_no_fallback_function_by_default() -> None:
    origin = ToolOrigin("look", None, ToolKind.FUNCTION, wrapped=False)
    assert (origin.hosted, origin.grammar) == (None, None)
