// What was used: plots by hour and day, sums by model and key, and the budgets of keys and groups.

import { admin } from "../api.js";
import { Component, html } from "../dom.js";
import { NOTHING, dollars, integer, seconds, share, short } from "../format.js";
import { Plot } from "../plot.js";
import { quantile, sums, timeline } from "../usage_series.js";
import { Keys } from "./keys.js";

const SPANS = {
  "48h": ["hour", "48 hours"],
  "7d": ["hour", "7 days"],
  "30d": ["day", "30 days"],
  "90d": ["day", "90 days"],
};
const TABLES = ["model", "upstream", "account", "key", "group"];
const REFRESH_MS = 60_000;

export class Usage extends Component {
  constructor() {
    super();
    this.state = { span: "48h", by: "model", usage: null, table: null, keys: null, problem: "", missing: false };
  }

  componentDidMount() {
    this.timer = setInterval(() => this.load(), REFRESH_MS);
    this.load();
  }

  componentWillUnmount() {
    clearInterval(this.timer);
  }

  choose(change) {
    this.setState(change, () => this.load());
  }

  async load() {
    const { span, by } = this.state;
    const [unit] = SPANS[span];
    admin("GET", "/keys").then((keys) => this.setState({ keys }), () => this.setState({ keys: null }));
    try {
      const [usage, table] = await Promise.all([
        admin("GET", `/usage?by=${unit}&since=${span}`),
        admin("GET", `/usage?by=${by}&since=${span}&limit=100`),
      ]);
      // Another span may have been chosen meanwhile.
      if (span === this.state.span && by === this.state.by) this.setState({ usage: { ...usage, unit }, table, problem: "", missing: false });
    } catch (error) {
      this.setState({ problem: error.message, missing: error.status === 404 });
    }
  }

  render(_, { span, by, usage, table, keys, problem, missing }) {
    return html`<section class="view" aria-labelledby="usage-title">
      <header class="bar"><h1 id="usage-title">Usage</h1>
        <div class="filters">
          <select aria-label="Span" value=${span} onChange=${(event) => this.choose({ span: event.target.value })}>
            ${Object.entries(SPANS).map(([name, [, title]]) => html`<option key=${name} value=${name}>${title}</option>`)}
          </select>
        </div></header>
      ${missing ? html`<p class="note">Usage is not available at this gateway.</p>`
        : problem ? html`<p class="alert" role="alert">${problem}</p>` : null}
      ${usage ? html`<${Totals} total=${usage.total} /><${Plots} usage=${usage} />` : null}
      ${table ? html`<h2>By <select aria-label="Sums by" value=${by} onChange=${(event) => this.choose({ by: event.target.value })}>
          ${TABLES.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></h2>
        <${Sums} table=${table} />` : null}
      ${keys ? html`<${Keys} ...${keys} />` : null}
    </section>`;
  }
}

function Totals({ total }) {
  const facts = [
    ["requests", integer(total.requests)],
    ["errors", integer(total.errors)],
    ["tokens in", short(total.input_tokens)],
    ["from caches", total.input_tokens ? share(total.cached_tokens / total.input_tokens) : NOTHING],
    ["tokens out", short(total.output_tokens)],
    ["cost", dollars(total.cost_usd)],
  ];
  return html`<dl class="facts totals">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// A plot compares its data with those before, so they are made once for each response.
class Plots extends Component {
  render({ usage }) {
    if (this.usage !== usage) {
      this.usage = usage;
      this.series = seriesOf(usage);
    }
    return html`<div class="plots">${this.series.map((each) => html`<${Plot} key=${each.title} ...${each} />`)}</div>`;
  }
}

function seriesOf(usage) {
  const { times, rows } = timeline(usage, usage.unit);
  const sum = (name) => sums(rows, name);
  const first = (wanted) => rows.map((row) => (row ? quantile(row.first_byte, usage.first_byte_bounds_s, wanted) : null));
  return [
    { title: "Requests and errors", labels: ["requests", "errors"], colours: ["accent", "bad"], data: [times, sum("requests"), sum("errors")], format: short, bars: true },
    { title: "First byte", labels: ["median", "95 %"], colours: ["accent", "warn"], data: [times, first(0.5), first(0.95)], format: seconds },
    { title: "Tokens", labels: ["in", "from caches", "out"], colours: ["accent", "good", "warn"], data: [times, sum("input_tokens"), sum("cached_tokens"), sum("output_tokens")], format: short },
    { title: "Cost", labels: ["cost"], colours: ["accent"], data: [times, sum("cost_usd")], format: dollars, bars: true },
  ];
}

function Sums({ table }) {
  const [by] = table.by;
  const rows = [...table.rows].sort((one, other) => (other.cost_usd || 0) - (one.cost_usd || 0) || other.requests - one.requests);
  return html`<div class="scrolls"><table>
    <thead><tr><th>${by}</th><th class="number">requests</th><th class="number">errors</th><th class="number">tokens in</th>
      <th class="number">from caches</th><th class="number">tokens out</th><th class="number">first byte, median</th><th class="number">cost</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row[by]}>
      <td>${row[by] || NOTHING}</td><td class="number">${integer(row.requests)}</td>
      <td class=${`number ${row.errors ? "error" : ""}`}>${integer(row.errors)}</td>
      <td class="number">${short(row.input_tokens)}</td>
      <td class="number">${row.input_tokens ? share(row.cached_tokens / row.input_tokens) : NOTHING}</td>
      <td class="number">${short(row.output_tokens)}</td>
      <td class="number">${seconds(quantile(row.first_byte, table.first_byte_bounds_s, 0.5))}</td>
      <td class="number">${row.cost_usd === null ? "no price" : dollars(row.cost_usd)}</td></tr>`)}</tbody>
  </table>${rows.length ? null : html`<p class="empty">Nothing was used.</p>`}</div>`;
}
