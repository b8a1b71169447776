// One request in any protocol to any model: first what would be sent, then the response as it comes.

import { admin, refusal, urlOf, adminHeaders } from "../api.js";
import { Component, html } from "../dom.js";
import { seconds } from "../format.js";
import { PROTOCOLS } from "../protocols.js";

const MAX_SHOWN = 200_000;
const DRAW_MS = 60;

export class Playground extends Component {
  constructor() {
    super();
    const [protocol] = Object.keys(PROTOCOLS);
    this.state = { protocol, model: "", models: [], key: "", path: "", body: "", explanation: null, problem: "", hint: "", answer: null };
  }

  async componentDidMount() {
    this.fill("");
    await this.listModels("");
  }

  componentWillUnmount() {
    if (this.run) this.run.abort();
  }

  async listModels(key) {
    try {
      const response = await fetch(urlOf("/v1/models"), { headers: keyHeaders(key), credentials: "omit" });
      if (!response.ok) throw await refusal(response);
      const models = (await response.json()).data.map((each) => each.id);
      this.setState({ models, problem: "", hint: "" });
      if (!this.state.model && models.length) this.fill(models[0]);
    } catch (error) {
      if (error.status !== 401) this.setState({ problem: error.message });
      else this.setState({ hint: "Explain needs no client key. With one, models are listed, and Send works." });
    }
  }

  fill(model, protocol = this.state.protocol) {
    const { path, body } = PROTOCOLS[protocol];
    this.setState({ model, protocol, path: path(model), body: JSON.stringify(body(model), null, 2), explanation: null });
  }

  async explain() {
    const { path, body } = this.state;
    this.setState({ problem: "", explanation: null });
    try {
      const headers = { ...adminHeaders(), "content-type": "application/json" };
      const options = { method: "POST", headers, body, credentials: "omit", cache: "no-store" };
      const response = await fetch(urlOf(`/admin/explain${path}`), options);
      if (!response.ok) throw await refusal(response);
      this.setState({ explanation: await response.json() });
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }

  async send() {
    const { path, body, key } = this.state;
    if (this.run) this.run.abort();
    const run = (this.run = new AbortController());
    const began = performance.now();
    const answer = { status: 0, text: "", first: null, seconds: null, id: "", loss: "", error: "", open: true, cut: false };
    const show = () => this.run === run && this.setState({ answer: { ...answer } });
    const timer = setInterval(show, DRAW_MS);
    this.setState({ problem: "", answer });
    try {
      const headers = { ...keyHeaders(key), "content-type": "application/json" };
      const response = await fetch(urlOf(path), { method: "POST", headers, body, signal: run.signal, credentials: "omit" });
      answer.status = response.status;
      answer.id = response.headers.get("dragoman-request-id") || "";
      answer.loss = response.headers.get("dragoman-loss") || "";
      const decoder = new TextDecoder();
      for await (const bytes of chunks(response.body)) {
        answer.first ??= (performance.now() - began) / 1000;
        if (answer.text.length < MAX_SHOWN) answer.text += decoder.decode(bytes, { stream: true });
        else answer.cut = true;
      }
    } catch (error) {
      answer.error = run.signal.aborted ? "you stopped it" : `the response broke: ${error.message}`;
    } finally {
      clearInterval(timer);
      answer.open = false;
      answer.seconds = (performance.now() - began) / 1000;
      show();
    }
  }

  render(_, { protocol, model, models, key, path, body, explanation, problem, hint, answer }) {
    const set = (name) => (event) => this.setState({ [name]: event.target.value });
    return html`<section class="view" aria-labelledby="playground-title">
      <h1 id="playground-title">Playground</h1>
      <div class="playground">
        <form onSubmit=${(event) => { event.preventDefault(); this.explain(); }}>
          <div class="fields">
            <label>Protocol <select value=${protocol} onChange=${(event) => this.fill(model, event.target.value)}>
              ${Object.keys(PROTOCOLS).map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
            <label>Model <input list="models" value=${model} onChange=${(event) => this.fill(event.target.value)} /></label>
            <datalist id="models">${models.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
            <label>Client key <input type="password" autocomplete="off" placeholder="none" value=${key} onInput=${set("key")}
              onChange=${(event) => this.listModels(event.target.value)} /></label>
          </div>
          <label class="path">POST <input class="mono" aria-label="Path" value=${path} onInput=${set("path")} /></label>
          <textarea aria-label="Body" rows="14" spellcheck="false" value=${body} onInput=${set("body")}></textarea>
          <div class="buttons">
            <button>Explain</button>
            <button type="button" class="main" onClick=${() => this.send()}>Send</button>
            ${answer && answer.open ? html`<button type="button" onClick=${() => this.run.abort()}>Stop</button>` : null}
            <span class="note">The key is kept in this form only. Sending spends what any request spends.</span>
          </div>
          ${hint ? html`<p class="note">${hint}</p>` : null}
          ${problem ? html`<p class="alert" role="alert">${problem}</p>` : null}
        </form>
        <div>
          ${answer ? html`<${Answer} ...${answer} />` : null}
          ${explanation ? html`<${Explanation} ...${explanation} />`
            : answer ? null : html`<p class="empty">Explain shows where the request would go, and what would be sent there. Nothing is sent then.</p>`}
        </div>
      </div>
    </section>`;
  }
}

const keyHeaders = (key) => (key ? { authorization: `Bearer ${key}` } : {});

async function* chunks(body) {
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

function Answer({ status, text, first, seconds: total, id, loss, error, open, cut }) {
  return html`<section aria-label="Response" class="response">
    <h2>Response ${open ? html`<span class="frames">streams</span>` : null}</h2>
    <p class="note">
      <span class=${status >= 400 ? "error" : ""}>${status ? `status ${status}` : "…"}</span>
      ${first === null ? "" : ` · first byte ${seconds(first)}`}${total === null ? "" : ` · ${seconds(total)}`}
      ${id ? html` · <a href=${`#/requests/${id}`}>request ${id.slice(0, 12)}</a>` : null}
      ${loss ? html` · lost: <span class="loss">${loss}</span>` : null}
    </p>
    ${error ? html`<p class="alert" role="alert">${error}</p>` : null}
    <pre class="answer-text" tabindex="0">${text}</pre>
    ${cut ? html`<p class="note">The rest is not shown.</p>` : null}
  </section>`;
}

function Explanation({ model, protocol, upstreams, notes }) {
  return html`<section aria-label="Explanation">
    <h2>What would be sent</h2>
    <p class="note">${model}, requested in ${protocol}</p>
    ${upstreams.map((step, number) => html`<div key=${number} class="step">
      ${step.message ? html`<p class="alert">${step.target || "The gateway"} refuses it: status ${step.status}: ${step.message}${step.path ? ` (at ${step.path})` : ""}</p>`
        : html`<p><b>${number ? "If that fails: " : ""}${step.target}</b> <span class="note">${step.rule} · ${step.mode} to ${step.protocol} · accounts: ${step.accounts.join(", ")}</span></p>
        ${step.losses.length ? html`<ul class="losses">${step.losses.map(([code, path, detail]) => html`<li><span class="loss">${code}</span> <code>${path || "/"}</code> ${detail}</li>`)}</ul>`
          : html`<p class="note">Nothing would be lost.</p>`}
        <details open=${number === 0}><summary>POST ${step.url}</summary>
          <pre>${step.headers.map(([name, value]) => `${name}: ${value}`).join("\n")}${"\n\n"}${JSON.stringify(step.body, null, 2)}</pre></details>`}
    </div>`)}
    ${notes.map((note) => html`<p class="note">${note}</p>`)}
  </section>`;
}
