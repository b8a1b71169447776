// The configuration in force, with the origin of each value.

import { admin } from "../api.js";
import { Component, html } from "../dom.js";

export class Configuration extends Component {
  constructor() {
    super();
    this.state = { settings: null, problem: "", search: "", changed: false };
  }

  async componentDidMount() {
    try {
      const { settings } = await admin("GET", "/configuration");
      this.setState({ settings });
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }

  render(_, { settings, problem, search, changed }) {
    const word = search.toLowerCase();
    const shown = (settings || []).filter(
      (each) => (!changed || each.origin !== "default") && `${each.key} ${each.value} ${each.origin}`.toLowerCase().includes(word),
    );
    return html`<section class="view" aria-labelledby="configuration-title">
      <header class="bar"><h1 id="configuration-title">Configuration in force</h1>
        <div class="filters" role="search">
          <input type="search" aria-label="Search settings" placeholder="search" value=${search}
            onInput=${(event) => this.setState({ search: event.target.value })} />
          <label><input type="checkbox" checked=${changed} onChange=${() => this.setState({ changed: !changed })} /> without defaults</label>
        </div></header>
      <p class="summary" aria-live="polite">${settings ? `${shown.length} of ${settings.length} settings; secrets are masked` : ""}</p>
      ${problem ? html`<p class="alert" role="alert">${problem}</p>` : null}
      <div class="scrolls"><table class="settings">
        <thead><tr><th>setting</th><th>value</th><th>origin</th></tr></thead>
        <tbody>${shown.map((each) => html`<tr key=${each.key} class=${each.origin === "default" ? "faint" : ""}>
          <td class="mono">${each.key}</td><td class="mono">${each.value}</td><td>${each.origin}</td></tr>`)}</tbody>
      </table></div>
    </section>`;
  }
}
