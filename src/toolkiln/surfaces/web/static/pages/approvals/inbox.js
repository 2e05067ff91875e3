// The pending calls and proposed tools in one list, kept up to date.
import { api } from "../../api.js";
import { recount, useEvery } from "../../badge.js";
import { useCallback, useEffect, useRef, useState } from "../../lib.js";
import { useLive } from "../../live.js";
import { toast } from "../../parts.js";

const CALLS_EVERY = 15_000; // other changes arrive as events
const TOOLS_EVERY = 3_000;
const PATIENCE = 20;
const MOST_CALLS = 1_000;
const MOST_TOOLS = 50;
const ORDER = ["call", "tool"];

/* Calls that wait, as {key, kind, at, name, call}; tools as {key, kind, at, name, tool}. A decided
   item has `ended`, a sentence, and stays while it is selected; `left` is the number of further
   pending files. */
export function useInbox(who) {
  const [items, setItems] = useState(null);
  const [troubles, setTroubles] = useState({});
  const [left, setLeft] = useState(0);
  const shown = useRef([]);
  const current = useRef(null);
  const ended = useRef(new Map());
  const turns = useRef({});

  const put = useCallback((next) => {
    const isShown = ({ key }) => !ended.current.has(key) || key === current.current;
    const withEnd = (item) => ({ ...item, ended: ended.current.get(item.key) });
    shown.current = next.filter(isShown).map(withEnd);
    setItems(shown.current);
  }, []);

  /* Mark an item as decided; late responses do not make it pending again. */
  const end = useCallback((key, sentence) => {
    ended.current.set(key, sentence);
    put(shown.current);
    recount();
  }, []);

  const choose = useCallback((key) => {
    current.current = key;
    put(shown.current);
  }, []);

  const take = useCallback(async (kind, ask) => {
    const turn = (turns.current[kind] ?? 0) + 1;
    turns.current[kind] = turn;
    let fresh;
    try {
      fresh = await ask();
    } catch (error) {
      setTroubles((before) => ({ ...before, [kind]: error }));
      if (!shown.current.length) put([]);
      return;
    }
    if (turns.current[kind] !== turn) return; // a later response came first
    setTroubles((before) => ({ ...before, [kind]: undefined }));
    if (kind === "tool") setLeft(fresh.left);
    const known = new Set(shown.current.map(({ key }) => key));
    const keys = new Set(fresh.map(({ key }) => key));
    const gone = shown.current.filter((item) => item.kind === kind && !keys.has(item.key));
    // An item missing from a truncated list may still be pending.
    const unknown = fresh.left ? [] : gone.filter(({ key }) => !ended.current.has(key));
    for (const item of unknown) {
      const sentence = await fate(item);
      ended.current.set(item.key, sentence);
      if (item.key !== current.current) toast(`${item.name}: ${sentence}`);
    }
    const others = shown.current.filter((item) => item.kind !== kind);
    const lookedAt = gone.filter(({ key }) => key === current.current);
    put([...others, ...fresh, ...lookedAt].sort(byAge));
    if (gone.length || fresh.some(({ key }) => !known.has(key))) recount();
  }, []);

  const loadCalls = useCallback(() => take("call", waitingCalls), []);
  const lookAtTools = useCallback(() => who.may("ADMIN") && take("tool", waitingTools), [who]);
  const lookPatiently = usePatience(lookAtTools);
  const look = () => {
    loadCalls();
    lookAtTools();
  };
  useEffect(look, [who]);
  useEvery(CALLS_EVERY, loadCalls);
  useEvery(TOOLS_EVERY, lookPatiently);
  useLive("approvals", loadCalls);
  useLive("run", ({ status }) => status === "pending" && loadCalls()); // also one of their own
  useLive("catalog", lookAtTools);
  useLive("again", look);
  return { items, left, troubles, end, choose, look };
}

/* Poll proposals, less often if that takes long, as with ten thousand files. */
function usePatience(look) {
  const next = useRef(0);
  return async () => {
    const begun = performance.now();
    if (begun < next.current) return;
    next.current = Infinity;
    await look();
    next.current = performance.now() + PATIENCE * (performance.now() - begun);
  };
}

async function waitingCalls() {
  const calls = [];
  let cursor;
  do {
    const part = await api.get("/v1/approvals", { limit: 200, cursor });
    calls.push(...part.items);
    cursor = part.next_cursor;
  } while (cursor && calls.length < MOST_CALLS);
  return calls.map((call) => ({
    key: call.id, kind: "call", at: call.created, name: call.tool, call,
  }));
}

async function waitingTools() {
  const { items, total } = await api.get("/v1/proposals", { limit: MOST_TOOLS });
  const fresh = items.map((tool) => ({
    // Another version of a file, or the same one proposed again, needs a new decision.
    key: `${tool.file} ${tool.digest} ${tool.base} ${tool.at}`,
    kind: "tool", at: tool.at ?? Infinity, name: tool.names.join(", ") || tool.file, tool,
  }));
  return Object.assign(fresh, { left: total - items.length });
}

/* Calls before tools, since they expire; oldest first. */
function byAge(one, other) {
  const kinds = ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind);
  return kinds || (one.at === other.at ? one.key.localeCompare(other.key) : one.at - other.at);
}

/* A sentence about an item that is no longer pending. */
async function fate({ kind, call }) {
  if (kind === "tool") return "Already decided, or the file has changed";
  try {
    return outcome(await api.get(`/v1/approvals/${encodeURIComponent(call.id)}`));
  } catch {
    return "No longer pending";
  }
}

/* How a request ended, in a sentence. */
export function outcome({ state, decided_by: by, edited }) {
  const changed = edited ? " with edited arguments" : "";
  if (state === "approved" || state === "used") return `Approved${changed} by ${by}`;
  if (state === "rejected") return `Rejected by ${by}`;
  if (state === "expired") return "Expired without a decision";
  return "The caller stopped waiting";
}
