// Calls of the gateway. The admin key goes into a header, and never into a URL. It is kept in the session storage of
// this tab, which the browser forgets with the tab.

const STORED = "dragoman.admin_key";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function adminKey() {
  return sessionStorage.getItem(STORED) || "";
}

export function setAdminKey(key) {
  if (key) sessionStorage.setItem(STORED, key);
  else sessionStorage.removeItem(STORED);
}

export function adminHeaders() {
  const key = adminKey();
  return key ? { authorization: `Bearer ${key}` } : {};
}

// A path below the gateway's own, wherever it is mounted: the page is at .../ui/.
export function urlOf(path) {
  return new URL(`..${path}`, document.baseURI).href;
}

// Returns the JSON of a response. Throws Refused.
export async function admin(method, path, body) {
  const headers = adminHeaders();
  if (body !== undefined) headers["content-type"] = "application/json";
  const options = { method, headers, cache: "no-store", credentials: "omit" };
  if (body !== undefined) options.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(urlOf(`/admin${path}`), options);
  } catch {
    throw new Refused(0, "the gateway does not respond");
  }
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export async function refusal(response) {
  const text = await response.text().catch(() => "");
  let message = text.slice(0, 500);
  try {
    const { error } = JSON.parse(text);
    message = error.message || message;
  } catch {
    // Not JSON: the text itself says more.
  }
  return new Refused(response.status, message || `status ${response.status}`);
}
