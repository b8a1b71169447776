const chat = GATE + PATH, body = BODY;
const read = async (url, options) => {
  try {
    const answer = await fetch(url, {signal: AbortSignal.timeout(20000), ...options});
    return `${answer.type} ${answer.status} ${await answer.text()}`;
  } catch (error) { return "nothing"; }
};
const load = (tag, url) => new Promise((resolve) => {
  const element = document.createElement(tag);
  element.onload = () => resolve("loaded");
  element.onerror = () => resolve("nothing");
  element.src = url;
  document.body.append(element);
});
const seen = {
  json: await read(chat, {method: "POST", headers: JSON_TYPE, body}),
  with_key: await read(chat, {method: "POST", headers: {...JSON_TYPE, "x-api-key": "any"}, body}),
  text: await read(chat, {method: "POST", headers: TEXT_TYPE, body}),
  no_type: await read(chat, {method: "POST", body: new Blob([body])}),
  form_data: await read(chat, {method: "POST", body: new URLSearchParams([[body, ""]])}),
  no_cors: await read(chat, {method: "POST", mode: "no-cors", body}),
  no_cors_keepalive: await read(chat, {method: "POST", mode: "no-cors", keepalive: true, body}),
  get: await read(GATE + "/v1/models"),
  get_no_cors: await read(GATE + "/v1/models", {mode: "no-cors"}),
  credentials: await read(GATE + "/v1/models", {credentials: "include"}),
  admin: await read(GATE + "/admin/accounts", {headers: ADMIN}),
  image: await load("img", GATE + "/v1/models"),
  script: await load("script", GATE + "/v1/models"),
  beacon: navigator.sendBeacon(chat, body) ? "nothing" : "not sent",
  events: await new Promise((resolve) => {
    const source = new EventSource(GATE + "/chat/sse");
    source.onopen = () => resolve("opened");
    source.onerror = () => { source.close(); resolve("nothing"); };
  }),
  socket: await new Promise((resolve) => {
    const socket = new WebSocket(GATE.replace("http", "ws") + "/v1/responses");
    socket.onopen = () => resolve("opened");
    socket.onerror = () => resolve("nothing");
  }),
};
const frame = document.createElement("iframe");
frame.name = "target";
document.body.append(frame);
const form = document.createElement("form");
Object.assign(form, {method: "POST", enctype: "text/plain", action: chat, target: "target"});
const field = document.createElement("input");
field.name = body.slice(0, -1) + ', "user": "';
field.value = '"}';
form.append(field);
document.body.append(form);
const loaded = new Promise((resolve) => { frame.onload = resolve; });
form.submit();
await loaded;
const sandbox = document.createElement("iframe");
sandbox.sandbox = "allow-scripts";
sandbox.srcdoc = `<script>
  fetch("${chat}", {method: "POST", mode: "no-cors", body: '${body}'}).finally(() => parent.postMessage("done", "*"));
</` + "script>";
const done = new Promise((resolve) => { onmessage = resolve; });
document.body.append(sandbox);
await done;
return seen;
