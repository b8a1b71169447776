// What is recorded, and a search in it.

import { admin } from "../api.js";
import { Component, html } from "../dom.js";
import { bytes, clock, seconds } from "../format.js";

export class Recordings extends Component {
  constructor() {
    super();
    this.state = { rows: [], cursor: null, q: "", model: "", problem: "", busy: true, missing: false };
  }

  componentDidMount() {
    this.search(false);
  }

  async search(more) {
    const { q, model, cursor, rows } = this.state;
    const query = new URLSearchParams();
    if (q) query.set("q", q);
    if (model) query.set("model", model);
    if (more) query.set("cursor", cursor);
    this.setState({ busy: true, problem: "" });
    try {
      const found = await admin("GET", `/recordings?${query}`);
      this.setState({ rows: more ? [...rows, ...found.recordings] : found.recordings, cursor: found.cursor, busy: false });
    } catch (error) {
      this.setState({ busy: false, problem: error.message, missing: error.status === 404 });
    }
  }

  render({ go }, { rows, cursor, q, model, problem, busy, missing }) {
    const submit = (event) => {
      event.preventDefault();
      this.search(false);
    };
    const set = (name) => (event) => this.setState({ [name]: event.target.value });
    return html`<section class="view" aria-labelledby="recordings-title">
      <header class="bar"><h1 id="recordings-title">Recordings</h1>
        ${missing ? null : html`<form class="filters" role="search" onSubmit=${submit}>
          <input type="search" aria-label="Text in the recording" placeholder="text in requests and responses" value=${q} onInput=${set("q")} />
          <input aria-label="Model" placeholder="model" value=${model} onInput=${set("model")} />
          <button>Search</button>
        </form>`}
      </header>
      ${problem ? html`<p class=${missing ? "note" : "alert"} role="status">${problem}</p>` : null}
      ${missing ? null : html`<div class="scrolls"><table>
        <thead><tr><th>time</th><th>model</th><th>upstream/model</th><th class="number">status</th><th class="number">duration</th>
          <th class="number">size</th><th>protocol</th><th>path</th><th>request</th></tr></thead>
        <tbody>${rows.map((each) => html`<tr key=${each.id}>
          <td>${new Date(each.time * 1000).toLocaleDateString("sv")} ${clock(each.time)}</td>
          <td>${each.model}</td>
          <td>${counted(each.upstreams)}</td>
          <td class=${`number ${each.status === null || each.status >= 400 ? "error" : ""}`}>${each.status ?? "left"}</td>
          <td class="number">${seconds(each.duration_s)}</td>
          <td class="number">${bytes(each.size)}${each.complete ? "" : " (cut)"}</td>
          <td>${each.protocol}</td>
          <td class="mono">${each.method} ${each.path}</td>
          <td><a href=${`#/requests/${each.id}`} class="mono">${each.id.slice(0, 12)}</a></td>
        </tr>`)}</tbody></table>
        ${rows.length ? null : html`<p class="empty">${busy ? "…" : "No recording fits."}</p>`}</div>`}
      <p>${cursor && !busy ? html`<button onClick=${() => this.search(true)}>Older ones</button>` : null}</p>
    </section>`;
  }
}

// Each name once, and how often it is there.
function counted(names) {
  const count = (name) => names.filter((each) => each === name).length;
  return [...new Set(names)].map((name) => (count(name) > 1 ? `${name} ×${count(name)}` : name)).join(", ");
}
