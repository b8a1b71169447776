// The page: its navigation, the key of its reader, and the feed that all views share.

import { adminKey, setAdminKey } from "./api.js";
import { Component, html, render } from "./dom.js";
import { Feed } from "./feed.js";
import { Requests } from "./requests.js";
import { Configuration } from "./views/configuration.js";
import { Live } from "./views/live.js";
import { Playground } from "./views/playground.js";
import { Recordings } from "./views/recordings.js";
import { RequestView } from "./views/request.js";
import { Upstreams } from "./views/upstreams.js";
import { Usage } from "./views/usage.js";

const VIEWS = [
  ["live", "Live", Live],
  ["recordings", "Recordings", Recordings],
  ["upstreams", "Upstreams", Upstreams],
  ["usage", "Usage", Usage],
  ["playground", "Playground", Playground],
  ["configuration", "Configuration", Configuration],
];

const STATES = {
  connecting: "connecting",
  open: "live",
  waiting: "not connected",
  refused: "needs a key",
};

function route() {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view: view || "live", rest: rest.map(decodeURIComponent).join("/") };
}

const go = (place) => {
  location.hash = `#/${place}`;
};

class Page extends Component {
  constructor() {
    super();
    this.requests = new Requests();
    this.memory = {};
    this.state = { ...route(), feed: "connecting", problem: "", status: 0, capture: false, session: 0 };
    const take = (type, data) => this.requests.take(type, data);
    this.feed = new Feed("?kept=true", take, (feed, problem, status = 0) => this.setState({ feed, problem, status }));
    // A reader of its own: the other one goes on without a gap.
    this.wires = new Feed("?type=request.wire", (type, data) => type === "request.wire" && take(type, data), () => {});
    this.onHash = () => this.setState(route(), showTop);
    this.onKey = (event) => {
      if (event.key === "Escape" && this.state.view === "requests") go("live");
    };
  }

  componentDidMount() {
    addEventListener("hashchange", this.onHash);
    addEventListener("keydown", this.onKey);
    this.feed.start();
  }

  setCapture(capture) {
    if (capture) this.wires.start();
    else this.wires.stop();
    this.setState({ capture });
  }

  setKey(key) {
    setAdminKey(key);
    this.requests.clear();
    this.feed.start();
    if (this.state.capture) this.wires.start();
    this.setState({ session: this.state.session + 1 });
  }

  render(_, { view, rest, feed, problem, status, capture, session }) {
    const found = VIEWS.find(([name]) => name === view);
    const shared = { store: this.requests, memory: this.memory, capture, setCapture: (value) => this.setCapture(value), go, rest };
    return html`<a class="skip" href="#main" onClick=${skip}>Skip to content</a>
      <header class="top">
        <span class="brand">Dragoman</span>
        <nav aria-label="Views">
          ${VIEWS.map(([name, title]) => html`<a key=${name} href=${`#/${name}`}
            aria-current=${name === view || (view === "requests" && name === "live") ? "page" : null}>${title}</a>`)}
        </nav>
        <span class=${`feed ${feed}`} role="status" title=${problem}>${STATES[feed]}</span>
        ${adminKey() ? html`<button class="quiet" onClick=${() => this.setKey("")}>Forget key</button>` : null}
      </header>
      <main id="main" tabindex="-1" key=${session}>
        ${feed === "refused" && status !== 0
          ? html`<${KeyForm} problem=${problem} wrong=${Boolean(adminKey())} done=${(key) => this.setKey(key)} />`
          : view === "requests"
            ? html`<${RequestView} key=${rest} id=${rest} ...${shared} />`
            : html`<${found ? found[2] : Live} ...${shared} />`}
      </main>`;
  }
}

function showTop() {
  const main = document.getElementById("main");
  main.scrollTo(0, 0);
  // Those who use the keyboard go on in the new view, and not at the beginning of the page.
  if (!main.contains(document.activeElement)) main.focus();
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

class KeyForm extends Component {
  render({ problem, wrong, done }, { key = "" }) {
    const submit = (event) => {
      event.preventDefault();
      done(key.trim());
    };
    return html`<section class="view keyform" aria-labelledby="key-title">
      <h1 id="key-title">Admin key</h1>
      <p class=${wrong ? "error" : ""} role=${wrong ? "alert" : null}>${problem}</p>
      <form onSubmit=${submit}>
        <label>Admin key <input type="password" autocomplete="off" autofocus value=${key}
          onInput=${(event) => this.setState({ key: event.target.value })} /></label>
        <button>Use</button>
      </form>
      <p class="note">It is sent in a header to this gateway only, and kept in this tab until you close it.</p>
    </section>`;
  }
}

render(html`<${Page} />`, document.body);
