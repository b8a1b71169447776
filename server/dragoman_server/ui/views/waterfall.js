// The attempts of a request over time, with their upstream, account and cause.

import { html } from "../dom.js";
import { NOTHING, seconds } from "../format.js";

// attempts: {number, account, model, hedge, start, end, ok, text}, in seconds since the request arrived.
export function Waterfall({ attempts, end, firstByte }) {
  if (!attempts.length) return html`<p class="note">No attempt was seen.</p>`;
  const total = Math.max(end, 0.001, ...attempts.map((each) => each.end));
  const at = (value) => `${Math.min(100, (100 * Math.max(0, value)) / total)}%`;
  return html`<div class="scrolls"><table class="waterfall cards">
    <thead><tr><th class="number">attempt</th><th>account</th><th>model</th><th class="bars" aria-hidden="true">
      <span class="ticks"><span>0</span><span>${seconds(total / 2)}</span><span>${seconds(total)}</span></span></th>
      <th class="number">duration</th><th>result</th></tr></thead>
    <tbody>${attempts.map((each) => html`<tr key=${each.number} class=${each.state}>
      <td class="number" data-label="attempt">${each.number}${each.hedge ? " hedge" : ""}</td>
      <td data-label="account">${each.account || NOTHING}</td>
      <td data-label="model">${each.model || NOTHING}</td>
      <td class="bars" aria-hidden="true"><div class="track">
        <div class="bar-of" style=${{ left: at(each.start), width: `calc(${at(each.end - each.start)} + 2px)` }}></div>
        ${each.state !== "failed" && firstByte !== undefined && firstByte >= each.start
          ? html`<div class="first-byte" style=${{ left: at(firstByte) }}></div>` : null}
      </div></td>
      <td class="number" data-label="duration">${seconds(each.end - each.start)}</td>
      <td class="result" data-label="result">${each.text}</td>
    </tr>`)}</tbody>
  </table></div>`;
}
