// Client keys and groups with what they have used, and their budgets.

import { html } from "../dom.js";
import { NOTHING, dollars, integer, moment, short } from "../format.js";

export function Keys({ keys, groups = [] }) {
  if (!keys.length) return html`<h2>Client keys</h2><p class="note">This gateway has no client keys.</p>`;
  return html`<h2>Client keys</h2>
    <div class="scrolls"><table>
      <thead><tr><th>key</th><th>group</th><th>state</th><th class="number">requests</th><th class="number">tokens</th><th class="number">cost</th>
        <th>budget</th><th>last used</th><th>expires</th></tr></thead>
      <tbody>${keys.map((each) => html`<tr key=${each.name}>
        <td>${each.name}</td><td>${each.group || NOTHING}</td>
        <td><span class=${`pill ${each.state === "active" ? "ready" : "disabled"}`}>${each.state}</span></td>
        <td class="number">${integer(each.requests)}</td><td class="number">${short(each.tokens)}</td>
        <td class="number">${dollars(each.cost_usd)}</td>
        <td><${Budget} ...${each} /></td>
        <td class="nowrap">${moment(each.last_used)}</td><td class="nowrap">${moment(each.expires)}</td></tr>`)}</tbody>
    </table></div>
    ${groups.length ? html`<h2>Groups</h2><div class="scrolls"><table>
      <thead><tr><th>group</th><th>models</th><th class="number">requests a minute</th><th class="number">tokens a minute</th><th>budget</th></tr></thead>
      <tbody>${groups.map((each) => html`<tr key=${each.name}>
        <td>${each.name}</td><td class="wide">${(each.models || []).join(", ") || "all"}</td>
        <td class="number">${integer(each.requests_per_minute)}</td><td class="number">${integer(each.tokens_per_minute)}</td>
        <td><${Budget} ...${each} /></td></tr>`)}</tbody>
    </table></div>` : null}`;
}

function Budget({ budget, budget_period: period, budget_spent: spent }) {
  if (budget === null || budget === undefined) return NOTHING;
  const used = spent === null ? null : budget ? spent / budget : 1;
  const kind = used === null ? "" : used >= 1 ? "over" : used >= 0.8 ? "near" : "";
  return html`<div class=${`budget ${kind}`}>
    <div class="track" aria-hidden="true"><div class="used" style=${{ width: `${Math.min(100, (used || 0) * 100)}%` }}></div></div>
    <span>${spent === null ? "unknown" : dollars(spent)} of ${dollars(budget)}${period === "total" ? " in all" : ` a ${period}`}</span>
  </div>`;
}
