// One request: what is known of it from the feed, and its recording if there is one.

import { admin, urlOf } from "../api.js";
import { Component, html } from "../dom.js";
import { NOTHING, clock, dollars, integer, seconds, share, shellQuoted } from "../format.js";
import { Body } from "./body.js";
import { statusText } from "./live.js";
import { Waterfall } from "./waterfall.js";
import { Wires, liveEntries, liveMoments, recordedEntries } from "./wires.js";

// A response that goes on is drawn so often at most, because its duration moves.
const TICK_MS = 500;

export class RequestView extends Component {
  constructor() {
    super();
    this.state = { recording: null, problem: "", replay: null, copied: "" };
  }

  componentDidMount() {
    this.unsubscribe = this.props.store.subscribe(() => this.setState({ change: {} }));
    this.timer = setInterval(() => this.isOpen() && this.setState({ change: {} }), TICK_MS);
    this.load();
  }

  componentWillUnmount() {
    clearInterval(this.timer);
    this.unsubscribe();
  }

  componentDidUpdate() {
    // It is written when the request has ended.
    if (!this.isOpen() && !this.loadedAtEnd) {
      this.loadedAtEnd = true;
      setTimeout(() => this.load(), TICK_MS);
    }
  }

  isOpen() {
    const request = this.props.store.byId.get(this.props.id);
    return request !== undefined && request.state === "open";
  }

  async load() {
    try {
      this.setState({ recording: await admin("GET", `/recordings/${encodeURIComponent(this.props.id)}`), problem: "" });
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }

  async replay() {
    this.setState({ replay: { text: "…" } });
    try {
      this.setState({ replay: replayText(await admin("GET", `/recordings/${this.props.id}/replay`)) });
    } catch (error) {
      this.setState({ replay: { text: error.message, bad: true } });
    }
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.setState({ copied: "copied" });
    } catch {
      this.setState({ copied: "the browser does not allow it: select the command below" });
    }
  }

  render({ id, store, go }, { recording, problem, replay, copied }) {
    const request = store.byId.get(id);
    if (!request && !recording) {
      return html`<section class="view"><${Back} go=${go} /><h1>Request ${id}</h1>
        <p>This page has seen nothing of it, and there is no recording: ${problem || "…"}</p></section>`;
    }
    const now = store.now();
    const body = recording ? recording.request.body : request.wire.filter(isClientRequest).map((each) => each.text).join("");
    const entries = entriesOf(request, recording);
    const hasWires = recording !== null || request.wire.length > 0;
    const command = body ? curl(recording ? pathOf(recording.request) : request.path, body) : "";
    return html`<section class="view" aria-labelledby="request-title">
      <${Back} go=${go} />
      <header class="bar">
        <h1 id="request-title">${request ? request.model || request.path : recording.model}
          ${" "}<span class="faint mono">${id}</span></h1>
        <div class="filters">
          ${command ? html`<button onClick=${() => this.copy(command)}>Copy as curl</button>` : null}
          ${recording ? html`<button onClick=${() => this.replay()}>Replay</button>` : null}
          <span role="status" class="faint">${copied}</span>
        </div>
      </header>
      ${request && request.error ? html`<p class="alert">${request.error_kind ? html`<b>${request.error_kind}</b>: ` : null}${request.error}</p>` : null}
      ${replay ? html`<p class=${replay.bad ? "alert" : "answer"} role="status">${replay.text}</p>` : null}
      ${request ? html`<${Facts} request=${request} now=${now} />` : html`<${RecordedFacts} recording=${recording} />`}
      <h2>Attempts</h2>
      <${Waterfall} ...${request ? liveAttempts(request, now) : recordedAttempts(recording)} />
      <h2>Request and what it lost</h2>
      <${Body} text=${body} losses=${recording?.losses || request?.losses || []} leftOut=${recording?.losses ? 0 : request?.lossesLeftOut} />
      <h2>Both wires</h2>
      ${hasWires ? html`<${Wires} entries=${entries} />` : html`<p class="note">
        They were not shown while it ran: switch “both wires” on above the live requests. ${problem ? `There is no recording: ${problem}.` : ""}</p>
        <${Wires} entries=${entries} />`}
      ${command ? html`<h2>As a command</h2><pre class="curl">${command}</pre>` : null}
    </section>`;
  }
}

// A recording has all bytes, and the feed why they were sent.
function entriesOf(request, recording) {
  if (!recording) return liveEntries(request);
  const recorded = recordedEntries(recording);
  return request ? [...recorded.filter((each) => !each.moment), ...liveMoments(request)] : recorded;
}

const isClientRequest = (each) => each.side === "client" && each.direction === "request";

function Back({ go }) {
  return html`<p class="back"><a href="#/live">← Live requests</a> <kbd>Esc</kbd></p>`;
}

function Fact({ name, value, kind }) {
  return html`<div><dt>${name}</dt><dd class=${kind || ""}>${value ?? NOTHING}</dd></div>`;
}

function Facts({ request, now }) {
  const tokens = (value) => integer(value);
  const state = { ok: "good", error: "error" }[request.state];
  return html`<dl class="facts">
    <${Fact} name="status" value=${statusText(request)} kind=${state} />
    <${Fact} name="arrived" value=${clock(request.at)} />
    <${Fact} name="duration" value=${seconds(request.state === "unknown" ? null : request.seconds(now))} />
    ${request.planned_s === undefined ? null : html`<${Fact} name="until planned" value=${seconds(request.planned_s)} />`}
    ${request.sent_s === undefined ? null : html`<${Fact} name="then until sent" value=${seconds(request.sent_s)} />`}
    <${Fact} name="first byte" value=${seconds(request.first_byte_s)} />
    <${Fact} name="sent so far" value=${request.ended && !request.bytes ? NOTHING : `${integer(request.frames)} ${request.frames === 1 ? "event" : "events"}, ${integer(request.bytes)} bytes`} />
    <${Fact} name="protocol" value=${request.protocol} />
    <${Fact} name="upstream/model" value=${request.target || NOTHING} />
    <${Fact} name="upstream protocol" value=${request.upstream_protocol} />
    <${Fact} name="account" value=${request.account} />
    <${Fact} name="client key" value=${request.client_key} />
    <${Fact} name="client" value=${request.client_address} />
    <${Fact} name="session" value=${request.session} />
    <${Fact} name="tokens in" value=${tokens(request.input_tokens)} />
    <${Fact} name="from cache" value=${`${tokens(request.cached_tokens)}${request.cached_share === undefined ? "" : ` (${share(request.cached_share)})`}`} />
    <${Fact} name="written to cache" value=${tokens(request.cache_write_tokens)} />
    <${Fact} name="tokens out" value=${tokens(request.output_tokens)} />
    <${Fact} name="cost" value=${`${dollars(request.cost_usd)}${request.estimated ? " (estimated)" : ""}`} />
    ${request.rule ? html`<${Fact} name="rule" value=${request.rule} />` : null}
    ${Object.entries(request.skipped || {}).map(([account, reason]) => html`<${Fact} name=${`skipped: ${account}`} value=${reason} kind="warn" />`)}
  </dl>`;
}

function RecordedFacts({ recording }) {
  const last = recording.response.pieces.at(-1);
  return html`<dl class="facts">
    <${Fact} name="status" value=${recording.response.status} />
    <${Fact} name="arrived" value=${`${new Date(recording.time * 1000).toLocaleDateString("sv")} ${clock(recording.time)}`} />
    <${Fact} name="duration" value=${seconds(last && last[0])} />
    <${Fact} name="protocol" value=${recording.request.protocol} />
    <${Fact} name="path" value=${`${recording.request.method} ${recording.request.path}`} />
    <${Fact} name="account" value=${recording.attempts.at(-1)?.account} />
    <${Fact} name="recorded by" value=${recording.dragoman} />
    ${recording.complete ? null : html`<${Fact} name="recording" value="not complete" kind="warn" />`}
  </dl>`;
}

function liveAttempts(request, now) {
  const end = request.seconds(now);
  const attempts = request.attempts.map((each) => {
    const failed = Boolean(each.cause || each.kind);
    return {
      number: each.number, account: each.account, model: `${each.upstream}/${each.model}`, hedge: each.hedge,
      start: each.at - request.at,
      end: each.end === null ? end : each.end - request.at,
      state: failed ? "failed" : each.end === null ? "running" : request.state === "ok" ? "succeeded" : "failed",
      text: failed ? [each.status, each.kind, each.cause].filter(Boolean).join(" · ") : each.end === null ? "open" : statusText(request),
    };
  });
  const firstByte = request.first_byte_at === undefined ? undefined : request.first_byte_at - request.at;
  return { attempts, end, firstByte };
}

function recordedAttempts({ attempts, response }) {
  const ends = attempts.map((each) => (each.pieces.length ? each.pieces.at(-1)[0] : each.at_s));
  const end = Math.max(0, ...ends, ...response.pieces.map(([at]) => at));
  const rows = attempts.map((each, index) => {
    const good = each.status >= 200 && each.status < 300 && !each.error;
    const text = each.error || `status ${each.status ?? NOTHING}`;
    return { number: index + 1, account: each.account || each.upstream, model: `${each.upstream}/${each.model}`, start: each.at_s, end: ends[index], state: good ? "succeeded" : "failed", text };
  });
  return { attempts: rows, end, firstByte: response.pieces.length ? response.pieces[0][0] : undefined };
}

function replayText({ difference, error, from, upstream_protocol: protocol }) {
  const way = `Translated again from ${protocol} of ${from}`;
  if (error) return { text: `${way}: it fails now: ${error}`, bad: true };
  if (!difference) return { text: `${way}: as it was recorded` };
  const { where, event, pointer, recorded, now } = difference;
  const place = `${event === null ? "" : ` at event ${event}`} ${pointer}`.trimEnd();
  return { text: `${way}: the ${where} differs${place}: recorded ${recorded ?? "nothing"}, now ${now ?? "nothing"}`, bad: true };
}

const pathOf = ({ path, query }) => (query ? `${path}?${query}` : path);

// The key is one that the reader of the command has to set.
function curl(path, body) {
  return [
    `curl ${shellQuoted(urlOf(path))}`,
    `-H 'content-type: application/json' -H "authorization: Bearer $DRAGOMAN_KEY"`,
    `-d ${shellQuoted(body)}`,
  ].join(" \\\n  ");
}
