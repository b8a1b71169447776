// GET /admin/events, read by fetch, because EventSource can send no key. It comes back by itself, with Last-Event-ID.

import { adminHeaders, refusal, urlOf } from "./api.js";

const FIRST_WAIT_MS = 1000;
const MAX_WAIT_MS = 30_000;
// The gateway sends a comment after 15 seconds of silence.
const SILENCE_MS = 40_000;

// Splits a stream of server-sent events. push() returns the events that are complete.
export class EventParser {
  constructor() {
    this.decoder = new TextDecoder();
    this.rest = "";
  }

  push(bytes) {
    const blocks = (this.rest + this.decoder.decode(bytes, { stream: true })).split("\n\n");
    this.rest = blocks.pop();
    return blocks.map(parseEvent);
  }
}

function parseEvent(block) {
  const event = { id: null, type: "", data: null };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).trimStart();
    const name = line.slice(0, colon);
    if (name === "id") event.id = value;
    else if (name === "event") event.type = value;
    else if (name === "data") event.data = value;
  }
  return event;
}

// states: "connecting", "open", "waiting" (it comes back), "refused" (it does not: another key is needed).
export class Feed {
  constructor(query, onEvent, onState) {
    Object.assign(this, { query, onEvent, onState, id: null, wait: FIRST_WAIT_MS, run: null });
  }

  start() {
    this.stop();
    this.run = new AbortController();
    this.id = null;
    this.wait = FIRST_WAIT_MS;
    this.loop(this.run.signal);
  }

  stop() {
    if (this.run) this.run.abort();
    this.run = null;
  }

  async loop(stopped) {
    while (!stopped.aborted) {
      this.onState("connecting", "");
      let problem = "the connection ended";
      try {
        await this.read(stopped);
      } catch (error) {
        if (error.status === 400 && this.id !== null) {
          this.id = null; // The gateway has started again, and does not know it.
          continue;
        }
        if ([401, 403, 404].includes(error.status)) {
          this.onState("refused", error.message, error.status);
          return;
        }
        problem = error.message;
      }
      if (stopped.aborted) return;
      this.onState("waiting", problem);
      await new Promise((resolve) => setTimeout(resolve, this.wait * (0.75 + Math.random() / 2)));
      this.wait = Math.min(this.wait * 2, MAX_WAIT_MS);
    }
  }

  async read(stopped) {
    const headers = adminHeaders();
    if (this.id !== null) headers["last-event-id"] = this.id;
    const silence = new AbortController();
    const signal = AbortSignal.any([stopped, silence.signal]);
    const options = { headers, signal, cache: "no-store", credentials: "omit" };
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const response = await fetch(urlOf(`/admin/events${this.query}`), options);
      if (!response.ok) throw await refusal(response);
      const reader = response.body.getReader();
      const parser = new EventParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        for (const event of parser.push(value)) this.take(event);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  take(event) {
    if (event.id !== null) this.id = event.id;
    if (event.data === null) return;
    if (event.type === "hello") {
      this.wait = FIRST_WAIT_MS;
      this.onState("open", "");
    }
    this.onEvent(event.type, JSON.parse(event.data));
  }
}
