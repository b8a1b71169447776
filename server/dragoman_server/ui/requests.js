// What is known of requests, from the events of the feed: the newest MAX_REQUESTS.

export const MAX_REQUESTS = 5000;
// Characters of both wires, of all requests together. The oldest are dropped.
const MAX_WIRE = 8_000_000;
const NOTIFY_MS = 100;

export class Requests {
  constructor() {
    this.byId = new Map();
    this.subscribers = new Set();
    this.pending = 0;
    this.wireSize = 0;
    this.wired = new Set(); // requests with wires, the oldest first
    this.lost = 0;
    this.skew = 0; // seconds by which this clock is ahead of the gateway's
  }

  subscribe(subscriber) {
    this.subscribers.add(subscriber);
    return () => this.subscribers.delete(subscriber);
  }

  // Several events are one change, so that a busy gateway does not draw the page for each.
  notify() {
    this.pending ||= setTimeout(() => {
      this.pending = 0;
      for (const subscriber of this.subscribers) subscriber();
    }, NOTIFY_MS);
  }

  // Newest first.
  all() {
    return [...this.byId.values()].reverse();
  }

  clear() {
    this.byId.clear();
    this.wired.clear();
    this.wireSize = 0;
    this.notify();
  }

  now() {
    return Date.now() / 1000 - this.skew;
  }

  take(type, data) {
    if (type === "hello") {
      this.skew = Date.now() / 1000 - data.at;
      if (data.resumed !== true) this.abandon(() => true);
    } else if (type === "worker.left") {
      this.abandon((request) => request.worker === data.worker);
    } else if (type === "lost") {
      this.lost += data.count;
    } else if (data.request !== undefined) {
      this.takeOf(this.find(data), type, data);
    }
    this.notify();
  }

  find(data) {
    const known = this.byId.get(data.request);
    if (known) return known;
    const request = new Request(data.request, data.at);
    this.byId.set(request.id, request);
    if (this.byId.size > MAX_REQUESTS) {
      const [oldest] = this.byId.values();
      this.forgetWire(oldest);
      this.byId.delete(oldest.id);
    }
    return request;
  }

  takeOf(request, type, data) {
    // One that was kept by the gateway may come again, after the connection was lost.
    if (request.ended && type !== "request.wire") return;
    request.take(type, data);
    if (type !== "request.wire") return;
    const size = (data.text || "").length + 200;
    request.wireSize += size;
    this.wireSize += size;
    this.wired.add(request);
    for (const each of this.wired) {
      if (this.wireSize <= MAX_WIRE) break;
      this.forgetWire(each);
    }
  }

  forgetWire(request) {
    this.wireSize -= request.wireSize;
    this.wired.delete(request);
    request.wire = [];
    request.wireSize = 0;
  }

  // Their end was missed, or will not come.
  abandon(which) {
    for (const request of this.byId.values()) {
      if (!request.ended && which(request)) request.state = "unknown";
    }
  }
}

export class Request {
  constructor(id, at) {
    this.id = id;
    this.at = at;
    this.state = "open"; // then "ok", "error", or "unknown": its end was not seen
    this.ended = false;
    this.attempts = [];
    this.losses = [];
    this.lossesLeftOut = 0;
    this.moments = []; // {at, text}
    this.wire = [];
    this.wireSize = 0;
    this.frames = 0;
    this.bytes = 0;
  }

  take(type, data) {
    const handler = HANDLERS[type];
    if (handler) handler(this, data);
  }

  get target() {
    return this.upstream ? `${this.upstream}/${this.upstream_model ?? ""}` : "";
  }

  // Text in which a search looks.
  get haystack() {
    const parts = [this.id, this.model, this.target, this.account, this.client_key, this.error, this.session, this.path];
    return `${parts.join(" ")} ${this.losses.join(" ")}`.toLowerCase();
  }

  seconds(now) {
    return this.duration_s ?? Math.max(0, (this.ended_at ?? now) - this.at);
  }

  moment(at, text) {
    this.moments.push({ at, text });
  }
}

const COPIED = [
  "worker protocol method path client_address client_key model upstream upstream_model upstream_protocol account stream",
  "session status upstream_status outcome error error_kind first_byte_s first_content_s duration_s input_tokens",
  "output_tokens cached_tokens cached_share cache_write_tokens reasoning_tokens cost_usd estimated rule trace_id",
  "attempts_made failures skipped planned_s sent_s",
].join(" ").split(" ");

function copy(request, data) {
  for (const name of COPIED) if (data[name] !== undefined && data[name] !== null) request[name] = data[name];
  if (data.losses) {
    request.losses = data.losses;
    request.lossesLeftOut = data.losses_left_out || 0;
  }
}

// The attempts of a request of which only the end was seen: those that failed, one after the other, and the last one.
function attemptsOf(request, data) {
  let at = request.at;
  const attempts = (data.failures || []).map(({ model, seconds, ...failure }, index) => {
    const [upstream, name] = model.split(/\/(.*)/s);
    const begun = at;
    at += seconds;
    return { number: index + 1, hedge: false, upstream, model: name, at: begun, end: at, ...failure };
  });
  if (data.attempts > attempts.length) {
    const { upstream, upstream_model: model, account } = data;
    attempts.push({ number: attempts.length + 1, hedge: false, upstream, model, account, at, end: data.at, cause: "" });
  }
  return attempts;
}

const HANDLERS = {
  "request.begun": (request, data) => {
    request.at = data.at;
    copy(request, data);
    request.moment(data.at, "arrived");
  },
  "request.planned": (request, data) => {
    copy(request, data);
    request.moment(data.at, `planned for ${request.target}`);
  },
  "request.attempt": (request, data) => {
    request.account = data.account;
    const { number, upstream, account, model, hedge, at } = data;
    request.attempts.push({ number, upstream, account, model, hedge, at, end: null, cause: "" });
    request.moment(at, `attempt ${number}: ${account}`);
  },
  "request.attempt_failed": (request, data) => {
    const attempt = request.attempts.find((each) => each.number === data.number);
    if (attempt) Object.assign(attempt, { end: data.at, status: data.status, kind: data.kind, cause: data.cause });
    request.moment(data.at, `attempt ${data.number} failed: ${data.status ?? data.kind}`);
  },
  "request.first_byte": (request, data) => {
    request.status = data.status;
    request.first_byte_at = data.at;
    if (data.seconds !== undefined) request.first_byte_s = data.seconds;
    request.moment(data.at, `response begins: ${data.status}`);
  },
  "request.progress": (request, data) => {
    request.frames = data.frames;
    request.bytes = data.bytes;
  },
  "request.wire": (request, data) => request.wire.push(data),
  "request.ended": (request, data) => {
    // A request of which nothing else was seen has begun before this.
    if (!request.moments.length) {
      request.at = data.at - (data.duration_s ?? 0);
      request.attempts = attemptsOf(request, data);
    }
    const { attempts, ...rest } = data;
    copy(request, { ...rest, attempts_made: attempts });
    request.ended = true;
    request.ended_at = data.at;
    request.state = data.outcome === "completed" && (data.status ?? 200) < 400 ? "ok" : "error";
    for (const attempt of request.attempts) attempt.end ??= data.at;
    request.moment(data.at, `ended: ${data.outcome}`);
  },
};
