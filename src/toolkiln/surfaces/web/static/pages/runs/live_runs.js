// The runs that match the filters: loaded in pages, then updated by server events.
import { api } from "../../api.js";
import { useEffect, useRef, useState } from "../../lib.js";
import { useLive } from "../../live.js";
import { keyOf } from "./run.js";

const PART = 200;
const MOST = 5_000;
const PORTION_MS = 150;
const READING_PX = 400;

export function useRuns(wanted) {
  const [state, setState] = useState({ runs: null, fresh: [], busy: true });
  const [turn, setTurn] = useState(0);
  const control = useRef(null);
  const key = JSON.stringify(wanted);
  const news = useNews((events) =>
    setState((before) => (before.runs ? taken(before, events, wanted) : before)));

  const read = async (cursor) => {
    const { signal } = control.current;
    setState((before) => ({ ...before, busy: true, error: null }));
    news.hold();
    try {
      const found = await api.get(`/v1/runs?${queryOf(wanted, cursor)}`, null, { signal });
      if (signal.aborted) return;
      setState(({ runs, fresh }) => ({
        runs: joined(cursor ? runs : new Map(), found.items),
        fresh: cursor ? fresh : [],
        cursor: found.next_cursor,
        busy: false,
      }));
    } catch (error) {
      if (signal.aborted) return;
      setState((before) => ({ ...before, error, busy: false }));
    }
    news.release();
  };
  useEffect(() => {
    control.current = new AbortController();
    read();
    return () => control.current.abort();
  }, [key, turn]);

  const again = () => setTurn((now) => now + 1);
  useLive("again", again);
  useLive("lost", () => isReading() || again());

  const { runs, fresh, cursor, busy, error } = state;
  const more = () => !busy && cursor && read(cursor);
  return { runs, fresh, busy, error, isEnd: !cursor, more, again };
}

/* Batches of run events from the server. They wait while a list loads: the list may be older than
   the events. */
function useNews(take) {
  const current = useRef(take);
  current.current = take;
  const [news] = useState(() => {
    let events = [];
    let timer = null;
    let isHeld = false;
    const pass = () => {
      timer = null;
      if (isHeld || !events.length) return;
      current.current(events);
      events = [];
    };
    return {
      add: (run) => {
        events = [...events.slice(-MOST), run];
        if (timer === null) timer = setTimeout(pass, PORTION_MS);
      },
      hold: () => { isHeld = true; },
      release: () => { isHeld = false; pass(); },
    };
  });
  useLive("run", news.add);
  return news;
}

/* Whoever has scrolled this far reads: what is new waits, so that nothing moves under their
   eyes. */
const isReading = () => scrollY > READING_PX;

function queryOf({ status, tool, user }, cursor) {
  const query = new URLSearchParams({ limit: PART });
  for (const one of status) query.append("status", one);
  if (tool) query.set("tool", globOf(tool));
  if (user) query.set("user", user);
  if (cursor) query.set("cursor", cursor);
  return query;
}

/* The typed text matches any part of a name, unless it is a pattern. */
function globOf(text) {
  return /[*?[]/.test(text) ? text : `*${text}*`;
}

function joined(runs, items) {
  const all = new Map([...runs, ...items.map((run) => [keyOf(run), run])]);
  if (all.size <= MOST) return all;
  const newest = [...all].sort(([, one], [, other]) => other.started - one.started);
  return new Map(newest.slice(0, MOST));
}

function taken(before, news, wanted) {
  const runs = new Map(before.runs);
  const fresh = new Map(before.fresh.map((run) => [keyOf(run), run]));
  for (const run of news) {
    const key = keyOf(run);
    if (!fits(run, wanted)) {
      runs.delete(key);
      fresh.delete(key);
    } else if (runs.has(key) || !isReading()) {
      runs.set(key, run);
    } else {
      fresh.set(key, run);
    }
  }
  return { ...before, runs: joined(runs, []), fresh: [...fresh.values()] };
}

function fits(run, { status, tool, user }) {
  if (status.length && !status.includes(run.status)) return false;
  if (user && run.caller !== user) return false;
  return !tool || expressionOf(globOf(tool)).test(run.tool);
}

function expressionOf(glob) {
  const escaped = glob.replace(/[.+^${}()|\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".");
  try {
    return new RegExp(`^${escaped.replace(/\[!/g, "[^")}$`, "s");
  } catch {
    return /^$/; // an unclosed bracket: the server finds nothing either
  }
}
