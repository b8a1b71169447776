"""The screens of `dragoman top`. `tables` makes what they show from `state`."""

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import ContentSwitcher, Footer, Input, Static

from dragoman_server.cli.top.state import UNKNOWN, AccountRow, RequestRow, TopState
from dragoman_server.cli.top.tables import (
    ACCOUNTS,
    REQUESTS,
    Column,
    Row,
    cell,
    chosen,
    fit,
    in_order,
    rate_lines,
    request_lines,
)
from dragoman_server.settings.problems import printable

# However many events come, the screen changes a few times a second.
_REFRESH_S = 0.2

# Signs in the header of the column that the rows are sorted by.
_DESCENDING, _ASCENDING = "v", "^"

_BAD = Style(color="red")
_STYLES = {
    "open": Style(color="green"),
    "failed": _BAD,
    "refused": _BAD,
    "disabled": _BAD,
    "cooling": Style(color="yellow"),
    UNKNOWN: Style(color="yellow"),
    "client_left": Style(color="yellow"),
}
_HEADER = Style(bold=True, underline=True)
_CURSOR = Style(reverse=True)

HELP = """\
1 2 3      requests, accounts, rates; Tab the next one
up down    choose a row, also k and j, PageUp, PageDown, Home, End
Enter      all that is known of this request; Escape goes back
/          show only rows with these words; Enter keeps them, Escape drops them
s S        sort by the next column, by the one before
r          reverse the order
p          pause: the screen stays as it is; no event is lost meanwhile
q          quit

took       seconds since the request began; first: until its first byte
in>out     tokens; lost: how many losses its translation has had
unknown    the end of the request is not known, because the connection to the
           gateway was lost, or its worker was killed
"""


class Table(ScrollView, Generic[Row], can_focus=True):
    """Rows of which only those in sight are drawn, so that a thousand cost no more than a page of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move_page(-1)", show=False),
        Binding("pagedown", "move_page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]

    def __init__(self, columns: Sequence[Column[Row]], style_of: Callable[[Row], str], id: str) -> None:
        super().__init__(id=id)
        self._columns, self._style_of = columns, style_of
        self._rows: list[Row] = []
        self._now = 0.0
        self._words = ""
        self._sorted_by, self._descending = columns[0], False
        self._all: Sequence[Row] = ()
        # The id of the chosen row. None: the first one, whichever that is.
        self._chosen_id: str | None = None
        self._cursor = 0

    @property
    def chosen_row(self) -> Row | None:
        return self._rows[self._cursor] if self._rows else None

    def show(self, rows: Sequence[Row], now: float) -> None:
        """Show these rows, of which some may not fit the filter."""
        self._all, self._now = rows, now
        self._arrange()

    def filter(self, words: str) -> None:
        self._words = words
        self._arrange()

    def sort(self, step: int) -> None:
        """Sort by another one of the columns in sight."""
        shown = [each for each, _ in fit(self._columns, self.size.width)]
        place = shown.index(self._sorted_by) if self._sorted_by in shown else -step
        self._sorted_by = shown[(place + step) % len(shown)]
        self._descending = self._sorted_by.right
        self._arrange()

    def reverse(self) -> None:
        self._descending = not self._descending
        self._arrange()

    def _arrange(self) -> None:
        rows = chosen(self._all, self._columns, self._words, self._now)
        self._rows = in_order(rows, self._sorted_by, descending=self._descending, now=self._now)
        places = (place for place, row in enumerate(self._rows) if row.id == self._chosen_id)
        self._cursor = next(places, 0)
        self.virtual_size = Size(self.size.width, len(self._rows) + 1)
        self.refresh()

    def action_move(self, rows: int) -> None:
        if self._rows:
            self._choose(min(max(0, self._cursor + rows), len(self._rows) - 1))

    def action_move_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def _choose(self, index: int) -> None:
        self._cursor, self._chosen_id = index, self._rows[index].id if index else None
        top, height = self.scroll_offset.y, self.size.height - 1
        if not top <= index < top + height:
            self.scroll_to(y=index if index < top else index - height + 1, animate=False)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        index = self.scroll_offset.y + event.y - 1
        if event.y and index < len(self._rows):
            self._choose(index)

    def render_line(self, y: int) -> Strip:
        columns = fit(self._columns, self.size.width)
        base = self.rich_style
        if y == 0:
            arrow = _DESCENDING if self._descending else _ASCENDING
            texts = [f"{each.title}{arrow if each is self._sorted_by else ''}" for each, _ in columns]
            return self._strip(columns, texts, base + _HEADER)
        index = self.scroll_offset.y + y - 1
        if index >= len(self._rows):
            return Strip.blank(self.size.width, base)
        row = self._rows[index]
        style = base + _STYLES.get(self._style_of(row), Style.null())
        if index == self._cursor and self.has_focus:
            style += _CURSOR
        return self._strip(columns, [cell(each, row, self._now) for each, _ in columns], style)

    def _strip(self, columns: list[tuple[Column[Row], int]], texts: list[str], style: Style) -> Strip:
        line = Text(end="")
        for (column, width), written in zip(columns, texts, strict=True):
            # Text counts cells: some characters take two, some none.
            part = Text(written)
            part.align("right" if column.right else "left", width)
            line.append_text(part).append(" ")
        return Strip([Segment(line.plain, style)]).crop_extend(0, self.size.width, style)


class _Page(Screen[None]):
    """A text over the whole terminal, until Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "app.pop_screen", "Back", key_display="esc"),
    ]

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(markup=False, id="text")
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(_REFRESH_S, self._update)
        self._update()

    def _update(self) -> None:
        self.query_one("#text", Static).update(Text(self._text()))


class _Main(Screen[None]):
    """The three views, of which one is shown."""

    CSS = """
    #filter { height: 1; border: none; padding: 0; display: none; }
    #head { height: 1; text-style: bold; }
    ContentSwitcher { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "view('requests')", "Requests"),
        Binding("2", "view('accounts')", "Accounts"),
        Binding("3", "view('rates')", "Rates"),
        Binding("tab", "next_view", show=False, priority=True),
        Binding("enter", "look", "Look", key_display="Enter"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "drop_filter", show=False),
        Binding("s", "sort(1)", show=False),
        Binding("S", "sort(-1)", show=False),
        Binding("r", "reverse", show=False),
        Binding("p", "pause", "Pause"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "app.quit", "Quit"),
    ]
    _VIEWS = ("requests", "accounts", "rates")

    def __init__(self, state: TopState, clock: Callable[[], float], *, blocks: bool) -> None:
        super().__init__()
        self._state, self._clock, self._blocks = state, clock, blocks
        self._paused = False
        self._requests: Table[RequestRow] = Table(REQUESTS, lambda row: row.outcome, "requests")
        self._requests.reverse()
        self._accounts: Table[AccountRow] = Table(ACCOUNTS, lambda row: row.state, "accounts")

    def compose(self) -> ComposeResult:
        yield Static(markup=False, id="head")
        with ContentSwitcher(initial="requests"):
            yield self._requests
            yield self._accounts
            yield Static(markup=False, id="rates")
        yield Input(placeholder="words", id="filter", compact=True)
        yield Footer()

    def on_mount(self) -> None:
        self._requests.focus()
        self.set_interval(_REFRESH_S, self.update_views)
        self.update_views()

    def update_views(self) -> None:
        """Show the state as it is now, or what was there when the pause began."""
        now = self._clock()
        self._state.tick(now)
        if not self._paused:
            self._requests.show(self._state.requests(), now)
            self._accounts.show(self._state.accounts(), now)
            lines = rate_lines(self._state, now, max(1, self.app.size.width), blocks=self._blocks)
            self.query_one("#rates", Static).update(Text("\n".join(lines)))
        self.query_one("#head", Static).update(
            Text(printable(self._head()), no_wrap=True, overflow="ellipsis")
        )

    def _head(self) -> str:
        state = self._state
        if state.away:
            about = f"no connection: {state.away}"
        else:
            lost = f"  events lost: {state.lost}" if state.lost else ""
            about = f"open: {state.open}{lost}  dragoman {state.version}  workers: {len(state.workers)}"
        words = self.query_one("#filter", Input).value
        shown = [self.view, "PAUSED" if self._paused else "", f"with {words!r}" if words else "", about]
        return "  ".join(filter(None, shown))

    @property
    def view(self) -> str:
        return self.query_one(ContentSwitcher).current or ""

    @property
    def _table(self) -> Table[Any]:
        return self._accounts if self.view == "accounts" else self._requests

    def action_view(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        if name != "rates":
            self._table.focus()
        self.update_views()

    def action_next_view(self) -> None:
        self.action_view(self._VIEWS[(self._VIEWS.index(self.view) + 1) % len(self._VIEWS)])

    def action_sort(self, step: int) -> None:
        self._table.sort(step)

    def action_reverse(self) -> None:
        self._table.reverse()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self.update_views()

    def action_look(self) -> None:
        row = self._requests.chosen_row
        if self.view != "requests" or row is None:
            return

        def text() -> str:
            # It may have been dropped for newer ones meanwhile.
            shown = row if self._paused else self._state.find(row.id) or row
            return "\n".join(request_lines(shown, self._clock()))

        self.app.push_screen(_Page(text))

    def action_help(self) -> None:
        self.app.push_screen(_Page(lambda: HELP))

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_drop_filter(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._requests.filter(event.value)
        self._accounts.filter(event.value)

    def on_input_submitted(self) -> None:
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self._table.focus()


class TopApp(App[None]):
    """The application. It only shows: somebody else passes events to the state.

    blocks: the terminal has block elements.
    """

    ENABLE_COMMAND_PALETTE = False
    # Scroll bars are drawn with blocks, too.
    CSS = ".-ascii * { scrollbar-size: 0 0; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", show=False, priority=True)]

    def __init__(self, state: TopState, clock: Callable[[], float] = time.time, *, blocks: bool) -> None:
        super().__init__(ansi_color=True)
        self._main = _Main(state, clock, blocks=blocks)
        self.set_class(not blocks, "-ascii")

    def on_mount(self) -> None:
        self.push_screen(self._main)

    def shows_accounts(self) -> bool:
        return self._main.is_mounted and self._main.view == "accounts"
