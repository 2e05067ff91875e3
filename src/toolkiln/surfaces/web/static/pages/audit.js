// The audit log: its records, and whether they are intact.
import { useWho } from "../app.js";
import { api } from "../api.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { useLive } from "../live.js";
import {
  Busy, Button, Dialog, Duration, Empty, Icon, Locked, Time, Trouble, Virtual,
} from "../parts.js";
import { Shown } from "../result/text.js";
import { navigate, useQuery } from "../router.js";
import { Export } from "./audit/export.js";
import { FILTERS, Filters } from "./audit/filters.js";
import { Outcome, RecordDetail } from "./audit/record.js";
import { Verification } from "./audit/verification.js";

const PART = 100;
const COLUMNS = ["Time", "Act", "Outcome", "User", "Tool", "Detail"];
const ROW = 36;
const NARROW_ROW = 76;
const NARROW = matchMedia("(max-width: 760px)");

export default function Audit() {
  const who = useWho();
  if (!who.may("ADMIN")) {
    return html`
      <div class="page-head"><h1>Audit</h1></div>
      <${Locked} title="The audit log requires ADMIN" privilege="ADMIN" />`;
  }
  return html`<${Records} />`;
}

function Records() {
  const query = useQuery();
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? undefined]));
  const { items, isEnd, busy, error, more, again } = useRecords(wanted);
  const [shown, setShown] = useState(null);
  const change = (changes) => {
    const left = Object.entries({ ...wanted, ...changes }).filter(([, value]) => value);
    const text = new URLSearchParams(left).toString();
    navigate(`/audit${text ? `?${text}` : ""}`, { replace: true });
  };
  return html`
    <div class="page-head">
      <h1>Audit</h1><span class="grow"></span>
      <${Button} icon="rotate-cw" onClick=${again}>Reload</${Button}>
      <${Export} wanted=${wanted} />
    </div>
    <div class="stack">
      <${Verification} newest=${items?.[0]?.seq} />
      <${Filters} wanted=${wanted} onChange=${change} />
      ${error && html`<${Trouble} error=${error} onRetry=${items?.length ? more : again} />`}
      ${!items && !error && html`<${Busy} label="Loading records" />`}
      ${items && !items.length && !error && html`<${Nothing} wanted=${wanted}
        onClear=${() => navigate("/audit", { replace: true })} />`}
      ${items?.length > 0 && html`
        <${List} items=${items} onShow=${setShown} />
        <${End} isEnd=${isEnd} busy=${busy} count=${items.length} onMore=${more} />`}
    </div>
    ${shown && html`<${Dialog} title=${`Record ${shown.seq}`} onClose=${() => setShown(null)}>
      <${RecordDetail} record=${shown} onFilter=${(changes) => {
        setShown(null);
        change(changes);
      }} />
    </${Dialog}>`}`;
}

/* Matching records, newest first, in pages. */
function useRecords(wanted) {
  const [state, setState] = useState({ items: null, busy: true });
  const [turn, setTurn] = useState(0);
  const control = useRef(null);
  const key = JSON.stringify(wanted);
  const read = async (cursor) => {
    const { signal } = control.current;
    setState((before) => ({ ...before, busy: true, error: null }));
    try {
      const found = await api.get("/v1/audit", { ...wanted, limit: PART, cursor }, { signal });
      if (signal.aborted) return;
      setState(({ items }) => ({
        items: [...(cursor ? items : []), ...found.items.map((one) => ({ ...one, key: one.seq }))],
        cursor: found.next_cursor, busy: false,
      }));
    } catch (error) {
      if (!signal.aborted) setState((before) => ({ ...before, error, busy: false }));
    }
  };
  useEffect(() => {
    control.current = new AbortController();
    read();
    return () => control.current.abort();
  }, [key, turn]);
  const again = () => setTurn((now) => now + 1);
  useLive("again", again);
  const { items, cursor, busy, error } = state;
  const more = () => !busy && cursor && read(cursor);
  return { items, busy, error, isEnd: !cursor, more, again };
}

function List({ items, onShow }) {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const look = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", look);
    return () => NARROW.removeEventListener("change", look);
  }, []);
  return html`
    <div class="records">
      <div class="record head" aria-hidden="true">
        ${COLUMNS.map((name) => html`<span>${name}</span>`)}
        <span class="duration">Duration</span></div>
      <${Virtual} items=${items} height=${isNarrow ? NARROW_ROW : ROW} label="Records"
        render=${(record) => html`
        <button type="button" class="record" onClick=${() => onShow(record)}>
          <span class="time"><${Time} at=${record.at} /></span>
          <span class="act">${record.act}</span>
          <span><${Outcome} outcome=${record.outcome} /></span>
          <span class="user"><${Shown} text=${record.user} /></span>
          <span class="tool"><${Shown} text=${record.tool} /></span>
          <span class="detail"><${Shown} text=${record.detail} /></span>
          <span class="duration">${record.duration !== null && html`
            <${Duration} seconds=${record.duration} />`}</span>
        </button>`} />
    </div>`;
}

/* The end of the loaded records; older ones load when it becomes visible. */
function End({ isEnd, busy, count, onMore }) {
  const place = useRef(null);
  const more = useRef(onMore);
  more.current = onMore;
  useEffect(() => {
    const watching = new IntersectionObserver(
      (seen) => seen.some(({ isIntersecting }) => isIntersecting) && more.current(),
      { rootMargin: "600px" },
    );
    watching.observe(place.current);
    return () => watching.disconnect();
  }, [count]);
  return html`
    <p class="muted records-end" ref=${place} role="status">
      ${isEnd ? `End of log: ${count.toLocaleString()} ${count === 1 ? "record" : "records"}`
        : busy ? html`<${Icon} name="loader" /> Loading older records…`
        : html`<${Button} onClick=${onMore}>Show older records</${Button}>`}
    </p>`;
}

function Nothing({ wanted, onClear }) {
  if (!Object.values(wanted).some(Boolean)) {
    return html`<${Empty} icon="scroll-text" title="No records yet">
      Every call and administrative act leaves a record here.</${Empty}>`;
  }
  return html`<${Empty} icon="scroll-text" title="No matching records"
    action=${html`<${Button} icon="x" onClick=${onClear}>Clear filters</${Button}>`}>
    Try fewer filters, or a pattern such as send_*.</${Empty}>`;
}
