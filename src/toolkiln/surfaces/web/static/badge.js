// The number of requests waiting for the user: in the title, the tab's icon, and notifications.
import { api } from "./api.js";
import { useEffect, useRef, useState } from "./lib.js";
import { useLive } from "./live.js";
import { navigate } from "./router.js";

const LOOK_EVERY = 15_000;
const WANTED = "toolkiln.notify";
const CHANGED = "toolkiln:waiting";
let title = document.title;
let waiting = 0;

/* Set the title, with the number of waiting requests in front. */
export function entitle(text) {
  title = text;
  document.title = waiting ? `(${waiting}) ${title}` : title;
}

/* Count proposed tools again; pages call it when one was added or removed. */
export function recount() {
  dispatchEvent(new Event(CHANGED));
}

/* Whether a person may answer a call that waits, if it is their own: as the rule says, or else
   only the person who runs the server. */
export function mayAnswer(call, who) {
  return call.user !== who.user || (call.approve_own ?? who.kind === "local");
}

/* The number of calls and proposed tools waiting for the current user's decision. */
export function useWaiting(who) {
  const [calls, setCalls] = useState(0);
  const [tools, setTools] = useState(0);
  // A count that fails keeps its last value, so that no notification comes twice.
  const countTools = async () => {
    if (!who?.may("ADMIN")) return;
    const query = { state: "proposed", limit: 1 };
    const found = await api.get("/v1/proposals", query).catch(() => null);
    if (found) setTools(found.total);
  };
  const countCalls = async () => {
    if (!who) return;
    const found = await api.get("/v1/approvals", { limit: 200 }).catch(() => null);
    if (found) setCalls(found.items.filter((call) => mayAnswer(call, who)).length);
  };
  useEffect(() => {
    countTools();
    addEventListener(CHANGED, countTools);
    return () => removeEventListener(CHANGED, countTools);
  }, [who]);
  useEvery(LOOK_EVERY, countTools, { always: true }); // also in the background
  useLive("approvals", ({ pending }) => setCalls(pending));
  useLive("catalog", countTools);
  useLive("again", () => {
    countTools();
    countCalls(); // a stream starts without a count and reports changes
  });
  const number = calls + tools;
  const before = useRef(0);
  useEffect(() => {
    show(number);
    if (number > before.current) notify(number);
    before.current = number;
  }, [number]);
  return number;
}

/* Call a function at intervals: while the page is visible (and when it becomes so), or always. */
export function useEvery(milliseconds, handle, { always = false } = {}) {
  const latest = useRef(handle);
  latest.current = handle;
  useEffect(() => {
    const call = () => (always || document.visibilityState === "visible") && latest.current();
    const timer = setInterval(call, milliseconds);
    document.addEventListener("visibilitychange", call);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", call);
    };
  }, [milliseconds]);
}

function show(number) {
  waiting = number;
  entitle(title);
  const icon = document.querySelector("link[rel=icon]");
  icon.href = new URL(number ? "icon-waiting.svg" : "icon.svg", import.meta.url);
}

/* "on", "off", "refused" by the browser or the user, or "absent" if the browser has none. */
export function notifying() {
  if (!("Notification" in window) || !isSecureContext) return "absent";
  if (Notification.permission === "denied") return "refused";
  const isWanted = localStorage.getItem(WANTED) === "yes";
  return isWanted && Notification.permission === "granted" ? "on" : "off";
}

/* Start or stop notifications; asks for permission, so only call it after a click. */
export async function setNotifying(isWanted) {
  localStorage.setItem(WANTED, isWanted ? "yes" : "no");
  if (isWanted) await Notification.requestPermission();
  return notifying();
}

function notify(number) {
  if (notifying() !== "on" || document.visibilityState === "visible") return;
  const said = number === 1 ? "1 request waits for your decision"
    : `${number} requests wait for your decision`;
  const notification = new Notification("Toolkiln", { body: said, tag: "toolkiln-waiting" });
  notification.onclick = () => {
    focus();
    navigate("/approvals");
    notification.close();
  };
}
