// Summary of one run: status, duration, and order among others.
import { html, useEffect, useState } from "../../lib.js";
import { Badge, Duration } from "../../parts.js";

export const STATUSES = {
  running: { words: "Running", kind: "info", icon: "loader" },
  pending: { words: "Waiting", kind: "warn", icon: "hand", title: "Waiting for approval" },
  ok: { words: "Done", kind: "ok", icon: "circle-check" },
  failed: { words: "Failed", kind: "bad", icon: "circle-x" },
  invalid: {
    words: "Invalid", kind: "warn", icon: "circle-alert",
    title: "The arguments or the name were wrong",
  },
  denied: { words: "Denied", kind: "warn", icon: "shield-x" },
  timeout: { words: "Timed out", kind: "bad", icon: "timer-off" },
  killed: { words: "Killed", kind: "bad", icon: "octagon-x", title: "Exceeded a limit" },
  cancelled: { words: "Cancelled", kind: "quiet", icon: "circle-slash" },
  unavailable: {
    words: "Unavailable", kind: "bad", icon: "server-off", title: "The platform could not run it",
  },
};
export const ISOLATION = {
  A: "Sandbox A: separate namespaces, from a fork server",
  B: "Sandbox B: a separate bwrap",
  C: "Sandbox C, reduced: Landlock, seccomp and limits",
  none: "No sandbox: a function in the server's own process",
};

export const isRunning = ({ status }) => status === "running" || status === "pending";

/* Callers choose ids and may repeat them; together with the start they are unique. */
export const keyOf = ({ id, started }) => `${started} ${id}`;

export const placeOf = (id) => `/runs/${encodeURIComponent(id)}`;

export function StatusBadge({ run }) {
  const { words, kind, icon, title } = STATUSES[run.status] ?? { words: run.status, kind: "quiet" };
  return html`<${Badge} kind=${kind} icon=${icon} title=${run.code ?? title}>${words}</${Badge}>`;
}

/* The duration so far, or in total. */
export function Took({ run }) {
  const now = useSeconds(isRunning(run));
  if (!isRunning(run)) return html`<${Duration} seconds=${run.duration} />`;
  return html`<${Duration} seconds=${Math.max(0, now - run.started)} />`;
}

/* The current time, updated every second while a call runs. */
function useSeconds(matters) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    if (!matters) return undefined;
    setNow(Date.now() / 1000);
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, [matters]);
  return now;
}

/* Runs as rows, newest first, each followed by its nested calls in order. */
export function rowsOf(runs, folded) {
  const byId = new Map(runs.map((run) => [run.id, run]));
  const made = new Map();
  const roots = [];
  for (const run of [...runs].sort((one, other) => other.started - one.started)) {
    if (!byId.has(run.parent)) roots.push(run);
    else made.set(run.parent, [run, ...(made.get(run.parent) ?? [])]);
  }
  const rows = [];
  const put = (run, depth) => {
    const key = keyOf(run);
    const isParent = byId.get(run.id) === run && made.has(run.id);
    const isFolded = isParent && folded.has(key);
    const count = isParent ? made.get(run.id).length : 0;
    rows.push({ key, run, depth, count, isFolded });
    if (isParent && !isFolded) for (const inner of made.get(run.id)) put(inner, depth + 1);
  };
  for (const run of roots) put(run, 0);
  return rows;
}
