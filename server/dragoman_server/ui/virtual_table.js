// A table of many rows, of which only those in sight are in the document. Arrow keys choose a row, Enter opens it.

import { Component, createRef, html } from "./dom.js";

// Rows above and below those in sight, so that scrolling does not show a gap.
const SPARE = 12;

// props: memory, an object that keeps what was chosen while the table is not there; label; columns, [{name, title, cell(row), number}]; rows; keyOf(row); open(row); groupOf(row), the text of a
// row that is a heading; empty, what is shown without rows.
export class VirtualTable extends Component {
  constructor(props) {
    super(props);
    this.box = createRef();
    this.state = { top: 0, height: 600, rowHeight: 28, chosen: props.memory.chosen ?? null };
    this.onScroll = () => this.setState({ top: this.box.current.scrollTop });
    this.onKey = (event) => this.takeKey(event);
  }

  componentDidMount() {
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(this.box.current);
    this.measure();
    const { top = 0, chosen } = this.props.memory;
    this.box.current.scrollTop = top;
    if (chosen) this.box.current.focus({ preventScroll: true });
  }

  componentWillUnmount() {
    this.observer.disconnect();
    Object.assign(this.props.memory, { top: this.state.top, chosen: this.state.chosen });
  }

  measure() {
    const rowHeight = parseFloat(getComputedStyle(this.box.current).getPropertyValue("--row-height")) || 28;
    this.setState({ height: this.box.current.clientHeight, rowHeight });
  }

  // What the reader looks at stays where it is while rows come above it.
  getSnapshotBeforeUpdate(before) {
    const { top, rowHeight } = this.state;
    if (before.rows === this.props.rows || top < rowHeight) return null;
    const index = Math.min(Math.floor(top / rowHeight), before.rows.length - 1);
    return index < 0 ? null : { index, key: before.keyOf(before.rows[index]) };
  }

  componentDidUpdate(_before, _state, anchor) {
    if (!anchor) return;
    const { rows, keyOf } = this.props;
    const index = rows.findIndex((row) => keyOf(row) === anchor.key);
    if (index >= 0 && index !== anchor.index) {
      this.box.current.scrollTop += (index - anchor.index) * this.state.rowHeight;
    }
  }

  chosenIndex() {
    return this.props.rows.findIndex((row) => this.props.keyOf(row) === this.state.chosen);
  }

  takeKey(event) {
    const { rows, keyOf, open, groupOf } = this.props;
    const page = Math.max(1, Math.floor(this.state.height / this.state.rowHeight) - 2);
    const at = this.chosenIndex();
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length };
    if (event.key === "Enter" && at >= 0 && !(groupOf && groupOf(rows[at]))) {
      event.preventDefault();
      open(rows[at]);
    } else if (event.key in steps && rows.length) {
      event.preventDefault();
      const next = Math.min(Math.max(steps[event.key], 0), rows.length - 1);
      this.setState({ chosen: keyOf(rows[next]) });
      this.show(next);
    }
  }

  show(index) {
    const { top, height, rowHeight } = this.state;
    const [above, below] = [index * rowHeight, (index + 2) * rowHeight]; // the head takes a row
    if (above < top) this.box.current.scrollTop = above;
    else if (below > top + height) this.box.current.scrollTop = below - height;
  }

  render({ label, columns, rows, keyOf, open, groupOf, empty }, { top, height, rowHeight, chosen }) {
    const first = Math.max(0, Math.floor(top / rowHeight) - SPARE);
    const last = Math.min(rows.length, Math.ceil((top + height) / rowHeight) + SPARE);
    const shown = rows.slice(first, last);
    const chosenShown = shown.some((row) => keyOf(row) === chosen);
    return html`<div class="grid" role="grid" aria-label=${label} aria-rowcount=${rows.length + 1} tabindex="0"
        aria-activedescendant=${chosenShown ? `row-${chosen}` : null} ref=${this.box} onScroll=${this.onScroll}
        onKeyDown=${this.onKey}>
      <div class="row head" role="row" aria-rowindex="1">
        ${columns.map((each) => html`<div key=${each.name} class=${classOf(each)} role="columnheader">${each.title}</div>`)}
      </div>
      ${rows.length ? null : html`<p class="empty">${empty}</p>`}
      <div class="rows" role="rowgroup" style=${{ height: `${rows.length * rowHeight}px` }}>
        ${shown.map((row, number) => {
          const key = keyOf(row);
          const place = { top: `${(first + number) * rowHeight}px` };
          const group = groupOf && groupOf(row);
          const choose = () => this.setState({ chosen: key });
          return html`<div key=${key} id=${`row-${key}`} role="row" aria-rowindex=${first + number + 2} style=${place}
              aria-selected=${key === chosen ? "true" : "false"}
              class=${`row ${group ? "group" : ""} ${row.state || ""} ${key === chosen ? "chosen" : ""}`}
              onClick=${group ? choose : () => { choose(); open(row); }}>
            ${group
              ? html`<div role="gridcell" class="cell whole">${group}</div>`
              : columns.map((each) => html`<div key=${each.name} role="gridcell" class=${classOf(each)}
                  title=${each.hint ? each.hint(row) : null}>${each.cell(row)}</div>`)}
          </div>`;
        })}
      </div>
    </div>`;
  }
}

const classOf = (column) => `cell ${column.name}${column.number ? " number" : ""}`;
