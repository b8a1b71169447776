"""An empty book changes nothing on the way back."""

from dragoman._ir.events import ToolKind
from dragoman._ir.undo import Book, Origin


def test_nothing_was_changed_by_default() -> None:
    book = Book()
    assert (dict(book.origins), book.used_ids, book.json_tool, book.stops) == ({}, frozenset(), None, ())
    assert (book.bare_json, book.compacts) == (False, False)


def test_an_origin_is_no_stand_in_by_default() -> None:
    origin = Origin("look", None, ToolKind.FUNCTION, wrapped=False)
    assert (origin.hosted, origin.grammar) == (None, None)
