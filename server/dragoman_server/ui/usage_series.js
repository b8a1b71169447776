// Series for plots from the rows of GET /admin/usage.

const STEP_S = { hour: 3600, day: 86400 };

// Rows by time, with one for each hour or day, also where nothing was used.
export function timeline(usage, unit) {
  const step = STEP_S[unit];
  const from = Math.floor(Date.parse(usage.since) / 1000 / step) * step;
  const until = Date.parse(usage.until) / 1000;
  const known = new Map(usage.rows.map((row) => [Date.parse(unit === "day" ? `${row.day}T00:00:00Z` : row.hour) / 1000, row]));
  const times = [];
  for (let at = from; at < until; at += step) times.push(at);
  return { times, rows: times.map((at) => known.get(at)) };
}

export function sums(rows, name) {
  return rows.map((row) => (row ? (row[name] ?? 0) : 0));
}

// A quantile of the first byte, from its histogram: on the line through the bucket that has it.
export function quantile(counts, bounds, wanted) {
  const total = counts.reduce((sum, each) => sum + each, 0);
  if (!total) return null;
  let left = wanted * total;
  for (let bucket = 0; bucket < counts.length; bucket += 1) {
    if (left <= counts[bucket] && counts[bucket]) {
      const low = bucket ? bounds[bucket - 1] : 0;
      const high = bounds[bucket] ?? low; // the last one has no bound
      return low + ((high - low) * left) / counts[bucket];
    }
    left -= counts[bucket];
  }
  return bounds.at(-1);
}
