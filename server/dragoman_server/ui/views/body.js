// A request's body, with its losses at their places.

import { html } from "../dom.js";
import { jsonLines, nearestPointer, parseLoss } from "../json_lines.js";

const MAX_LINES = 2000;

export function Body({ text, losses, leftOut }) {
  const found = losses.map(parseLoss);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return html`<${LossList} losses=${found} leftOut=${leftOut} />${text ? html`<pre>${text}</pre>` : null}`;
  }
  const { lines, truncated } = jsonLines(value, MAX_LINES);
  const shown = new Set(lines.map((line) => line.pointer).filter((pointer) => pointer !== null));
  const at = new Map();
  for (const loss of found) {
    const place = nearestPointer(loss.pointer, shown);
    at.set(place, [...(at.get(place) || []), loss]);
  }
  return html`<${LossList} losses=${found} leftOut=${leftOut} />
    <div class="json mono" tabindex="0" role="region" aria-label="Body of the request">
      ${lines.map((line, number) => {
        const lost = line.pointer === null ? undefined : at.get(line.pointer);
        return html`<div key=${number} class=${lost ? "line lossy" : "line"} style=${{ paddingLeft: `${line.depth * 2}ch` }}>
          <span>${line.text}</span>${lost ? lost.map((loss) => html` <span class="mark">${loss.code}${loss.pointer === line.pointer ? "" : ` ${loss.pointer}`}</span>`) : null}
        </div>`;
      })}
      ${truncated ? html`<div class="line note">The rest is not shown.</div>` : null}
    </div>`;
}

export function LossList({ losses, leftOut }) {
  if (!losses.length) return html`<p class="note">Nothing of the request was lost.</p>`;
  return html`<ul class="losses">
    ${losses.map((loss, number) => html`<li key=${number}><span class="loss">${loss.code}</span> <code>${loss.pointer || "/"}</code></li>`)}
    ${leftOut ? html`<li>and ${leftOut} more</li>` : null}
  </ul>`;
}
