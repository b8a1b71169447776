// Upstreams and their accounts: their state, with the clocks of those that cool down, and their last errors.

import { admin } from "../api.js";
import { Component, html } from "../dom.js";
import { NOTHING, clock, countdown, moment, share } from "../format.js";

const POLL_MS = 3000;
const TICK_MS = 1000;
const ACTIONS = ["enable", "disable", "reset"];

export class Upstreams extends Component {
  constructor() {
    super();
    this.state = { accounts: null, problem: "", asking: "" };
  }

  componentDidMount() {
    this.poll = setInterval(() => this.load(), POLL_MS);
    this.tick = setInterval(() => this.setState({ change: {} }), TICK_MS);
    this.load();
  }

  componentWillUnmount() {
    clearInterval(this.poll);
    clearInterval(this.tick);
  }

  async load() {
    try {
      const { accounts } = await admin("GET", "/accounts");
      this.setState({ accounts, problem: "" });
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }

  async change(id, action) {
    this.setState({ asking: "" });
    try {
      await admin("POST", `/accounts/${id.split("/").map(encodeURIComponent).join("/")}/${action}`);
    } catch (error) {
      this.setState({ problem: `${action} ${id}: ${error.message}` });
      return;
    }
    await this.load();
  }

  render({ store }, { accounts, problem, asking }) {
    const now = store.now();
    const errors = lastErrors(store);
    const groups = Map.groupBy(accounts || [], (each) => each.upstream);
    const states = (accounts || []).map((each) => stateOf(each, now));
    const count = (state) => states.filter((each) => each === state).length;
    return html`<section class="view" aria-labelledby="upstreams-title">
      <h1 id="upstreams-title">Upstreams and accounts</h1>
      <p class="summary" aria-live="polite">${accounts === null ? "…"
        : `${count("ready")} ready · ${count("cooling")} cooling down · ${count("disabled")} disabled`}</p>
      ${problem ? html`<p class="alert" role="alert">${problem}</p>` : null}
      <div class="scrolls"><table class="cards">
        <thead><tr><th>account</th><th>state</th><th class="number">cools down</th><th>cause</th><th>last error that this page saw</th>
          <th class="number">remaining</th><th>last used</th><th></th></tr></thead>
        ${[...groups].map(([upstream, members]) => html`<tbody key=${upstream}>
          <tr class="upstream"><th colspan="8" scope="rowgroup">${upstream}</th></tr>
          ${members.map((each) => {
            const state = stateOf(each, now);
            const error = errors.get(each.id);
            return html`<tr key=${each.id}>
              <td data-label="account">${each.name}</td>
              <td data-label="state"><span class=${`pill ${state}`}>${state}</span></td>
              <td class="number clock" data-label="cools down">${state === "cooling" ? countdown(Date.parse(each.cools_until) / 1000 - now) : NOTHING}</td>
              <td class="wide" data-label="cause">${each.cause || NOTHING}</td>
              <td class="wide" data-label="last error">${error ? html`<span><span class="faint">${clock(error.at)}</span> ${error.text}</span>` : NOTHING}</td>
              <td class="number" data-label="remaining">${share(each.remaining)}</td>
              <td class="nowrap" data-label="last used">${moment(each.last_used)}</td>
              <td class="actions">${asking === each.id
                ? html`<span>Disable it?</span> <button onClick=${() => this.change(each.id, "disable")}>Yes</button>
                  <button onClick=${() => this.setState({ asking: "" })}>No</button>`
                : ACTIONS.map((action) => html`<button key=${action} disabled=${!applies(action, state)}
                    aria-label=${`${action} ${each.id}`}
                    onClick=${() => (action === "disable" ? this.setState({ asking: each.id }) : this.change(each.id, action))}>${action}</button>`)}</td>
            </tr>`;
          })}
        </tbody>`)}
      </table></div>
    </section>`;
  }
}

function stateOf(account, now) {
  return account.state === "cooling" && Date.parse(account.cools_until) / 1000 <= now ? "ready" : account.state;
}

function applies(action, state) {
  return { enable: state === "disabled", disable: state !== "disabled", reset: true }[action];
}

function lastErrors(store) {
  const found = new Map();
  for (const request of store.byId.values()) {
    for (const each of request.attempts) {
      if (each.cause) found.set(each.account, { at: each.end, text: [each.status, each.kind, each.cause].filter(Boolean).join(" · ") });
    }
    if (request.state === "error" && request.account && request.error) {
      const known = found.get(request.account);
      if (!known || known.at <= request.ended_at) found.set(request.account, { at: request.ended_at, text: request.error });
    }
  }
  return found;
}
