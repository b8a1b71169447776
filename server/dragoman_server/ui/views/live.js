// Requests as they stream, newest first.

import { Component, html } from "../dom.js";
import { NOTHING, bytes, clock, dollars, integer, seconds, share, short } from "../format.js";
import { VirtualTable } from "../virtual_table.js";

// How often the durations of open requests move.
const TICK_MS = 500;
const SPEAK_MS = 15_000;

const STATES = {
  all: () => true,
  open: (request) => request.state === "open",
  errors: (request) => request.state === "error",
  losses: (request) => request.losses.length > 0,
  retried: (request) => request.attempts.length > 1 || request.attempts_made > 1,
};

export function statusText(request) {
  if (request.state === "open") return request.first_byte_at ? "streams" : request.attempts.length ? "waits" : "open";
  if (request.state === "unknown") return "end not seen";
  if (request.outcome && request.outcome !== "completed") return `${request.status ?? ""} ${request.outcome}`.trim();
  return String(request.status ?? request.outcome);
}

function columns(now) {
  return [
    { name: "time", title: "time", cell: (each) => clock(each.at) },
    { name: "status", title: "status", cell: (each) => html`<span class="outcome">${statusText(each)}</span>`, hint: (each) => each.error },
    { name: "model", title: "model", cell: (each) => each.model || NOTHING, hint: (each) => each.model },
    { name: "target", title: "upstream/model", cell: (each) => each.target || NOTHING, hint: (each) => each.target },
    { name: "account", title: "account", cell: accountText, hint: (each) => each.account },
    { name: "key", title: "key", cell: (each) => each.client_key || NOTHING, hint: (each) => each.client_key },
    { name: "duration", title: "duration", number: true, cell: (each) => (each.state === "unknown" ? NOTHING : seconds(each.seconds(now))) },
    { name: "first", title: "first byte", number: true, cell: (each) => seconds(each.first_byte_s) },
    { name: "in", title: "in", number: true, cell: (each) => short(each.input_tokens) },
    { name: "out", title: "out", number: true, cell: outText, hint: (each) => (each.bytes ? bytes(each.bytes) : null) },
    { name: "cached", title: "cached", number: true, cell: (each) => share(each.cached_share) },
    { name: "cost", title: "cost", number: true, cell: (each) => dollars(each.cost_usd) },
    { name: "lost", title: "lost", number: true, cell: lossText, hint: (each) => each.losses.join("\n") },
  ];
}

function accountText(request) {
  if (!request.account) return NOTHING;
  const name = request.account.slice(request.account.indexOf("/") + 1);
  const attempts = Math.max(request.attempts.length, request.attempts_made || 0);
  return attempts > 1 ? html`${name} <span class="tries">×${attempts}</span>` : name;
}

// While it streams, events are what can be counted.
function outText(request) {
  if (request.output_tokens !== undefined) return short(request.output_tokens);
  return request.frames ? html`<span class=${request.ended ? "faint" : "frames"}>${integer(request.frames)} ev</span>` : NOTHING;
}

function lossText(request) {
  const count = request.losses.length + request.lossesLeftOut;
  return count ? html`<span class="loss">${count}</span>` : NOTHING;
}

export class Live extends Component {
  constructor(props) {
    super(props);
    this.state = { search: "", show: "all", key: "", upstream: "", grouped: false, ...props.memory.filters };
    this.redraw = () => this.setState({ change: {} });
  }

  componentDidMount() {
    this.unsubscribe = this.props.store.subscribe(this.redraw);
    this.timer = setInterval(() => {
      if (this.props.store.all().some(STATES.open)) this.redraw();
    }, TICK_MS);
  }

  componentWillUnmount() {
    this.unsubscribe();
    clearInterval(this.timer);
    const { search, show, key, upstream, grouped } = this.state;
    this.props.memory.filters = { search, show, key, upstream, grouped };
  }

  shown(requests) {
    const { search, show, key, upstream } = this.state;
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return requests.filter(
      (each) =>
        STATES[show](each) &&
        (!key || each.client_key === key) &&
        (!upstream || each.upstream === upstream) &&
        (!words.length || words.every((word) => each.haystack.includes(word))),
    );
  }

  render({ store, memory, capture, setCapture, go }, { search, show, key, upstream, grouped }) {
    const requests = store.all().filter((each) => each.protocol !== "admin" && each.protocol !== undefined);
    const shown = this.shown(requests);
    const rows = grouped ? bySession(shown) : shown;
    const set = (name) => (event) => this.setState({ [name]: event.target.value });
    return html`<section aria-labelledby="live-title" class="view fill">
      <header class="bar">
        <h1 id="live-title">Live requests</h1>
        <div class="filters" role="search">
          <input type="search" aria-label="Search requests" placeholder="search model, key, error, id" value=${search}
            onInput=${set("search")} />
          ${choice("Show", show, Object.keys(STATES), set("show"))}
          ${choice("Key", key, ["", ...valuesOf(requests, "client_key")], set("key"), "all keys")}
          ${choice("Upstream", upstream, ["", ...valuesOf(requests, "upstream")], set("upstream"), "all upstreams")}
          <label><input type="checkbox" checked=${grouped} onChange=${() => this.setState({ grouped: !grouped })} /> sessions</label>
          <label title="of requests that begin from now on"><input type="checkbox" checked=${capture}
            onChange=${() => setCapture(!capture)} /> both wires</label>
        </div>
      </header>
      <${Summary} text=${summary(shown, requests.length)} />
      <${VirtualTable} memory=${memory} label="Requests" columns=${columns(store.now())} rows=${rows} keyOf=${(row) => row.id}
        groupOf=${(row) => row.group} open=${(row) => go(`requests/${row.id}`)}
        empty=${requests.length ? "No request fits the filters." : "No request yet. They appear here while they run."} />
    </section>`;
  }
}

// Screen readers are told from time to time, and not of each request.
class Summary extends Component {
  constructor(props) {
    super(props);
    this.state = { spoken: props.text };
  }

  componentDidMount() {
    this.timer = setInterval(() => this.setState({ spoken: this.props.text }), SPEAK_MS);
  }

  componentWillUnmount() {
    clearInterval(this.timer);
  }

  render({ text }, { spoken }) {
    return html`<p class="summary">${text}</p><p class="spoken" aria-live="polite">${spoken}</p>`;
  }
}

function choice(label, value, options, onChange, all) {
  return html`<select aria-label=${label} value=${value} onChange=${onChange}>
    ${options.map((each) => html`<option key=${each} value=${each}>${each || all}</option>`)}
  </select>`;
}

function valuesOf(requests, name) {
  return [...new Set(requests.map((each) => each[name]).filter(Boolean))].sort();
}

function summary(shown, all) {
  const open = shown.filter(STATES.open).length;
  const failed = shown.filter(STATES.errors).length;
  const cost = shown.reduce((sum, each) => sum + (each.cost_usd || 0), 0);
  const of = shown.length === all ? integer(all) : `${integer(shown.length)} of ${integer(all)}`;
  return `${of} requests · ${integer(open)} open · ${integer(failed)} failed · ${dollars(cost)}`;
}

// Those of one conversation together, below a line with their sums; the latest conversation first.
function bySession(requests) {
  const groups = new Map();
  for (const each of requests) {
    const name = each.session || "";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(each);
  }
  const rows = [];
  for (const [name, members] of groups) {
    const sum = (field) => members.reduce((total, each) => total + (each[field] || 0), 0);
    const title = name ? `session ${name}` : "without a session";
    const tokens = `${short(sum("input_tokens"))} in, ${short(sum("output_tokens"))} out`;
    const count = `${members.length} request${members.length === 1 ? "" : "s"}`;
    rows.push({ id: `session-${name}`, group: `${title} · ${count} · ${tokens} · ${dollars(sum("cost_usd"))}` });
    rows.push(...members);
  }
  return rows;
}
