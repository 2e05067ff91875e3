// One event stream for the whole page; it reconnects when the server is back.
import { api } from "./api.js";
import { useEffect, useRef, useState } from "./lib.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 5000;
const listeners = new Map();
let connection = "connecting";
let begun = false;
let control = null;

/* Call a function with each event of a kind, and with "again" once the server is back. */
export function useLive(kind, handle) {
  const current = useRef(handle);
  current.current = handle;
  useEffect(() => {
    const listener = (data) => current.current(data);
    const known = listeners.get(kind) ?? new Set();
    listeners.set(kind, known.add(listener));
    if (!begun) follow();
    return () => known.delete(listener);
  }, [kind]);
}

/* "connecting", "open", or "away" while the server cannot be reached. */
export function useConnection() {
  const [state, set] = useState(connection);
  useLive("connection", set);
  return state;
}

function tell(kind, data) {
  for (const listener of [...(listeners.get(kind) ?? [])]) listener(data);
}

function become(state) {
  if (state === connection) return;
  connection = state;
  tell("connection", state);
}

async function follow() {
  begun = true;
  let pause = FIRST_PAUSE;
  let wasAway = false;
  while (true) {
    try {
      for await (const { event, data } of api.stream("GET", "/v1/events", undefined, stopping())) {
        pause = FIRST_PAUSE;
        become("open");
        if (wasAway) tell("again", data);
        wasAway = false;
        tell(event, data);
      }
    } catch (error) {
      if (error.name === "AbortError") continue;
      if (error.status === 401) {
        await new Promise((go) => addEventListener("toolkiln:known", go, { once: true }));
        continue;
      }
    }
    wasAway = true;
    become("away");
    await new Promise((go) => setTimeout(go, pause));
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }
}

/* A signal that ends the stream at a login: otherwise it would continue for the previous user. */
function stopping() {
  control = new AbortController();
  return { signal: control.signal };
}

addEventListener("toolkiln:login", () => control?.abort());
