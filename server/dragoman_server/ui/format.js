// Numbers, times and pieces of text as the page shows them.

export const NOTHING = "–";

export function integer(value) {
  return value === undefined || value === null ? NOTHING : Math.round(value).toLocaleString("en-US");
}

// 1234567 -> 1.23M
export function short(value) {
  if (value === undefined || value === null) return NOTHING;
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    if (value >= size) return `${(value / (unit === "k" ? 1e3 : size)).toPrecision(3)}${unit}`;
  }
  return integer(value);
}

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  return value < 1024 ** 2 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / 1024 ** 2).toFixed(1)} MiB`;
}

export function seconds(value) {
  if (value === undefined || value === null) return NOTHING;
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const whole = Math.round(value);
  const parts = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return parts[0] ? `${parts[0]} h ${two(parts[1])} min` : `${parts[1]} min ${two(parts[2])} s`;
}

const two = (value) => String(value).padStart(2, "0");

// Seconds that are left, as a clock.
export function countdown(value) {
  const whole = Math.max(0, Math.ceil(value));
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return `${hours ? `${hours}:` : ""}${hours ? two(minutes) : minutes}:${two(whole % 60)}`;
}

export function dollars(value) {
  if (value === undefined || value === null) return NOTHING;
  if (value === 0) return "$0";
  const digits = value < 0.001 ? 6 : value < 0.01 ? 5 : value < 1 ? 4 : 2;
  return `$${value.toFixed(digits)}`;
}

export function share(value) {
  return value === undefined || value === null ? NOTHING : `${Math.round(value * 100)}%`;
}

// at: seconds since the epoch.
export function clock(at) {
  const time = new Date(at * 1000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":");
}

// time: as a string of RFC 3339.
export function moment(time) {
  return time ? `${new Date(time).toLocaleDateString("sv")} ${clock(new Date(time) / 1000)}` : NOTHING;
}

const CONTROLS = /[\x00-\x09\x0b-\x1f\x7f]/g;

// For a terminal, which may take control characters of a text that is pasted as keys.
export function shellQuoted(text) {
  if (text.search(CONTROLS) >= 0) {
    const hex = (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
    return `$'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll(CONTROLS, hex)}'`;
  }
  return `'${text.replaceAll("'", "'\\''")}'`;
}
