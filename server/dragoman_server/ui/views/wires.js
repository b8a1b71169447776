// Both wires of a request side by side, in the order of time, with what happened between.

import { html } from "../dom.js";
import { bytes, seconds } from "../format.js";

const MAX_ENTRIES = 1500;
const MAX_TEXT = 20_000;

// entries: {at, side, direction, head, text, error, leftOut}, or {at, moment}; at: in seconds since the request arrived.
export function Wires({ entries }) {
  const sorted = [...entries].sort((one, other) => one.at - other.at).slice(0, MAX_ENTRIES);
  return html`<div class="wires" role="table" aria-label="Both wires">
    <div class="wire-row heads" role="row">
      <div role="columnheader">client</div><div role="columnheader" class="middle">time</div><div role="columnheader">upstream</div>
    </div>
    ${sorted.map((each, number) => html`<div key=${number} role="row" class=${`wire-row ${each.moment ? "event" : each.side}`}>
      <div role="cell" class="client-cell">${each.side === "client" ? html`<${Piece} ...${each} />` : null}</div>
      <div role="cell" class="middle"><span class="at">${seconds(Math.max(0, each.at))}</span>${each.moment ? html` <span class="moment">${each.moment}</span>` : null}</div>
      <div role="cell" class="upstream-cell">${each.side === "upstream" ? html`<${Piece} ...${each} />` : null}</div>
    </div>`)}
    ${entries.length > MAX_ENTRIES ? html`<p class="note">${entries.length - MAX_ENTRIES} later entries are not shown.</p>` : null}
  </div>`;
}

function Piece({ direction, head, text, error, leftOut }) {
  const shown = text.length > MAX_TEXT ? text.slice(0, MAX_TEXT) : text;
  const hidden = text.length - shown.length + (leftOut || 0);
  const arrow = direction === "request" ? "→" : "←";
  return html`<div class="piece">
    <span class="way">${arrow} ${direction}</span>
    ${head ? html`<details><summary>${head.line}</summary><pre>${head.headers.map(([name, value]) => `${name}: ${value}`).join("\n")}</pre></details>` : null}
    ${shown ? html`<pre>${shown.trimEnd()}</pre>` : null}
    ${hidden > 0 ? html`<span class="note">${bytes(hidden)} more are not shown</span>` : null}
    ${error ? html`<span class="error">${error}</span>` : null}
  </div>`;
}

export function liveMoments(request) {
  return request.moments.map((each) => ({ at: each.at - request.at, moment: each.text }));
}

// From the events of the feed.
export function liveEntries(request) {
  const pieces = request.wire.map((each) => ({
    at: each.at - request.at,
    side: each.side,
    direction: each.direction,
    head: each.url || each.status
      ? { line: each.url ? `POST ${each.url}` : `status ${each.status}`, headers: each.headers || [] } : null,
    text: each.text || "",
    error: each.error,
    leftOut: each.left_out,
  }));
  return [...pieces, ...liveMoments(request)];
}

// From a recording.
export function recordedEntries({ request, response, attempts }) {
  const entries = [
    { at: 0, moment: "arrived" },
    { at: 0, side: "client", direction: "request", text: request.body, head: { line: `POST ${request.path}`, headers: request.headers } },
  ];
  attempts.forEach((each, index) => {
    entries.push(
      { at: each.at_s, moment: `attempt ${index + 1}: ${each.upstream}` },
      { at: each.at_s, side: "upstream", direction: "request", text: each.body, head: { line: `POST ${each.url}`, headers: each.headers } },
    );
    const first = each.pieces.length ? each.pieces[0][0] : each.at_s;
    if (each.status) {
      const head = { line: `status ${each.status}`, headers: each.response_headers };
      entries.push({ at: first, side: "upstream", direction: "response", text: "", head });
    }
    for (const [at, text] of each.pieces) entries.push({ at, side: "upstream", direction: "response", text });
    if (each.error) entries.push({ at: first, side: "upstream", direction: "response", text: "", error: each.error });
  });
  const begins = response.pieces.length ? response.pieces[0][0] : 0;
  if (response.status) {
    const head = { line: `status ${response.status}`, headers: response.headers };
    entries.push({ at: begins, side: "client", direction: "response", text: "", head });
  }
  for (const [at, text] of response.pieces) entries.push({ at, side: "client", direction: "response", text });
  if (!response.completed) entries.push({ at: Infinity, moment: "the client left, or the response was cut" });
  return entries;
}
