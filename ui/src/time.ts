// Formats times and amounts for people.

const steps: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

/** span formats a duration in one unit, or in two for a small number of the larger one. */
export function span(ms: number | undefined): string {
  if (ms === undefined || Number.isNaN(ms)) return "";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  for (const [i, [size, unit]] of steps.entries()) {
    if (ms < size) continue;
    const whole = Math.floor(ms / size);
    const next = steps[i + 1];
    const rest = next ? Math.floor((ms - whole * size) / next[0]) : 0;
    if (unit === "s") return `${(ms / size).toFixed(ms < 10_000 ? 1 : 0)} s`;
    return next && rest > 0 && whole < 10 ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
  }
  return "";
}

/** ago formats the time since a moment. */
export function ago(t: string | undefined): string {
  if (!t) return "";
  const ms = Date.now() - Date.parse(t);
  if (ms < 5000) return "just now";
  return `${rough(ms)} ago`;
}

/** until formats the time until a moment. */
export function until(t: string | undefined): string {
  if (!t) return "";
  const ms = Date.parse(t) - Date.now();
  return ms <= 0 ? "now" : `in ${rough(ms)}`;
}

function rough(ms: number): string {
  for (const [size, unit] of steps) if (ms >= size) return `${Math.floor(ms / size)} ${unit}`;
  return "1 s";
}
