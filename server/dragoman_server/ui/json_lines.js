// A JSON document as lines, each with the JSON Pointer of what it shows.

const MAX_TEXT = 2000;

export function jsonLines(value, maxLines) {
  const lines = [];
  const add = (depth, pointer, text) => {
    if (lines.length < maxLines) lines.push({ depth, pointer, text });
  };
  const walk = (depth, pointer, name, inner, comma) => {
    if (lines.length >= maxLines) return;
    const before = name === null ? "" : `${JSON.stringify(name)}: `;
    if (inner === null || typeof inner !== "object") {
      add(depth, pointer, before + shortened(JSON.stringify(inner)) + comma);
      return;
    }
    const isList = Array.isArray(inner);
    const [open, close] = isList ? "[]" : "{}";
    const entries = isList ? [...inner.entries()] : Object.entries(inner);
    if (!entries.length) {
      add(depth, pointer, before + open + close + comma);
      return;
    }
    add(depth, pointer, before + open);
    entries.forEach(([key, element], index) => {
      const step = String(key).replaceAll("~", "~0").replaceAll("/", "~1");
      walk(depth + 1, `${pointer}/${step}`, isList ? null : key, element, index < entries.length - 1 ? "," : "");
    });
    add(depth, null, close + comma);
  };
  walk(0, "", null, value, "");
  return { lines, truncated: lines.length >= maxLines };
}

function shortened(text) {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… (${text.length - MAX_TEXT} more characters)`;
}

// "code /a/b" -> its parts. A loss of the response has the place in that.
export function parseLoss(text) {
  const space = text.indexOf(" ");
  return space < 0 ? { code: text, pointer: "" } : { code: text.slice(0, space), pointer: text.slice(space + 1) };
}

// The pointer of the nearest line that is shown: a member that was lost may be deeper than what is there.
export function nearestPointer(pointer, shown) {
  let at = pointer;
  while (at && !shown.has(at)) at = at.slice(0, at.lastIndexOf("/"));
  return at;
}
