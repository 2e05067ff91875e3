// What was recorded, by whoever did it, and whether it is still as it was written.
import { useWho } from "../app.js";
import { api } from "../api.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { useLive } from "../live.js";
import { Badge, Busy, Button, Dialog, Duration, Empty, Field, Icon, Time, toast, Trouble, Virtual } from "../parts.js";
import { RecordDetail, OUTCOMES } from "../record.js";
import { Shown } from "../result/text.js";
import { navigate, useQuery } from "../router.js";
import { Verification } from "../verification.js";

const PART = 100;
const LARGEST_PART = 200;
const NARROW = matchMedia("(max-width: 760px)");
const ACTS = [
  "call", "admit", "rollback", "propose", "reject", "author", "grant", "switch", "remove", "run_source",
  "approve", "approval.forget", "key.create", "key.revoke", "session.create", "session.renew",
  "session.end", "session.open", "login", "settings", "secret.set", "secret.remove", "config", "audit.prune",
  "environment.prune",
];
const FILTERS = ["user", "tool", "act", "outcome", "session", "since", "until"];

export default function Audit() {
  const who = useWho();
  if (!who.may("ADMIN")) {
    return html`
      <div class="page-head"><h1>Audit</h1></div>
      <${Empty} icon="lock" title="The audit is for people with ADMIN">
        It tells what everybody does. An operator can give you the privilege <code>ADMIN</code>, under
        <code>[privileges]</code> in <code>toolkiln.toml</code>.</${Empty}>`;
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
      <${Button} icon="rotate-cw" onClick=${again}>Look again</${Button}>
      <${Export} wanted=${wanted} />
    </div>
    <div class="stack">
      <${Verification} newest=${items?.[0]?.seq} />
      <${Filters} wanted=${wanted} onChange=${change} />
      ${error && html`<${Trouble} error=${error} onRetry=${items?.length ? more : again} />`}
      ${!items && !error && html`<${Busy} label="Reading the records" />`}
      ${items && !items.length && !error && html`<${Nothing} wanted=${wanted} onClear=${() =>
        change(Object.fromEntries(FILTERS.map((name) => [name, undefined])))} />`}
      ${items?.length > 0 && html`
        <${List} items=${items} onShow=${setShown} />
        <${End} isEnd=${isEnd} busy=${busy} count=${items.length} onMore=${more} />`}
    </div>
    ${shown && html`<${Dialog} title=${`Record ${shown.seq}`} onClose=${() => setShown(null)}>
      <${RecordDetail} record=${shown} onFilter=${(changes) => { setShown(null); change(changes); }} />
    </${Dialog}>`}`;
}

/* Records that fit, newest first, a part at a time. */
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

function Filters({ wanted, onChange }) {
  const text = (name, label, given = {}) => html`<${Field} label=${label}>${(attributes) => html`
    <input ...${attributes} ...${given} value=${wanted[name] ?? ""} spellcheck=${false}
      onChange=${(event) => onChange({ [name]: event.target.value.trim() || undefined })} />`}</${Field}>`;
  const moment = (name, label) => html`<${Field} label=${label}>${(attributes) => html`
    <input ...${attributes} type="datetime-local" value=${local(wanted[name])}
      onChange=${(event) => onChange({ [name]: seconds(event.target.value) })} />`}</${Field}>`;
  return html`
    <form class="filters" role="search" aria-label="Which records" onSubmit=${(event) => event.preventDefault()}>
      ${text("user", "User")}
      ${text("tool", "Tool", { placeholder: "name or pattern*" })}
      ${text("act", "Act", { list: "acts" })}
      <datalist id="acts">${ACTS.map((act) => html`<option value=${act} />`)}</datalist>
      <${Field} label="Outcome">${(attributes) => html`
        <select ...${attributes} value=${wanted.outcome ?? ""}
          onChange=${(event) => onChange({ outcome: event.target.value || undefined })}>
          <option value="">any</option>
          ${Object.keys(OUTCOMES).map((outcome) => html`<option value=${outcome}>${outcome}</option>`)}
        </select>`}</${Field}>
      ${moment("since", "Since")}
      ${moment("until", "Until")}
      ${wanted.session && html`<${Button} icon="x" onClick=${() => onChange({ session: undefined })}>
        Session <code>${wanted.session.slice(0, 8)}</code></${Button}>`}
    </form>`;
}

/* Unix seconds as the control writes a time of this place, and back. */
function local(at) {
  if (at === undefined) return "";
  const date = new Date(Number(at) * 1000);
  const there = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return Number.isNaN(there.getTime()) ? "" : there.toISOString().slice(0, 16);
}

function seconds(text) {
  const at = new Date(text).getTime() / 1000;
  return at >= 0 ? String(at) : undefined;
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
      <div class="record head" aria-hidden="true"><span>Time</span><span>Act</span><span>Outcome</span>
        <span>User</span><span>Tool</span><span>Detail</span><span class="duration">Took</span></div>
      <${Virtual} items=${items} height=${isNarrow ? 76 : 36} label="Records" render=${(record) => html`
        <button type="button" class="record" onClick=${() => onShow(record)}>
          <span class="time"><${Time} at=${record.at} /></span>
          <span class="act">${record.act}</span>
          <span><${Badge} kind=${OUTCOMES[record.outcome] ?? "quiet"}>${record.outcome}</${Badge}></span>
          <span class="user"><${Shown} text=${record.user} /></span>
          <span class="tool"><${Shown} text=${record.tool} /></span>
          <span class="detail"><${Shown} text=${record.detail} /></span>
          <span class="duration">${record.duration === null ? "" : html`<${Duration} seconds=${record.duration} />`}</span>
        </button>`} />
    </div>`;
}

/* The end of what was read; older records come when it is seen. */
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
      ${isEnd ? `That is all: ${count.toLocaleString()} ${count === 1 ? "record" : "records"}`
        : busy ? html`<${Icon} name="loader" /> Reading older records…`
        : html`<${Button} onClick=${onMore}>Show older records</${Button}>`}
    </p>`;
}

function Nothing({ wanted, onClear }) {
  const isFiltered = Object.values(wanted).some(Boolean);
  const clear = html`<${Button} icon="x" onClick=${onClear}>Clear the filters</${Button}>`;
  return html`<${Empty} icon="scroll-text" title=${isFiltered ? "No record fits" : "Nothing was recorded yet"}
    action=${isFiltered && clear}>
    ${isFiltered ? "Try fewer filters, or a pattern such as send_*." : "Every call and administrative act leaves a record here."}
  </${Empty}>`;
}

/* All that fits, as lines of JSON, read a part at a time and saved as a file. */
function Export({ wanted }) {
  const [count, setCount] = useState(null);
  const control = useRef(null);
  useEffect(() => () => control.current?.abort(), []);
  const save = async () => {
    control.current = new AbortController();
    const { signal } = control.current;
    const lines = [];
    try {
      let cursor;
      do {
        setCount(lines.length);
        const found = await api.get("/v1/audit", { ...wanted, limit: LARGEST_PART, cursor }, { signal });
        lines.push(...found.items.map((record) => `${JSON.stringify(record)}\n`));
        cursor = found.next_cursor;
      } while (cursor);
      download(new Blob(lines, { type: "application/jsonl" }), "audit.jsonl");
      toast(`${lines.length.toLocaleString()} records are saved`);
    } catch (error) {
      if (!signal.aborted) toast(error.message, "bad");
    } finally {
      setCount(null);
    }
  };
  if (count === null) return html`<${Button} icon="download" onClick=${save}>Export</${Button}>`;
  return html`<${Button} icon="x" onClick=${() => control.current.abort()}>
    <span role="status">${count.toLocaleString()} read: stop</span></${Button}>`;
}

function download(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
