// The live, filtered list of runs, each followed by its nested calls.
import { useWho } from "../../app.js";
import { html, useEffect, useMemo, useRef, useState } from "../../lib.js";
import { Busy, Button, Empty, Field, Icon, Switch, Trouble, Virtual } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Link, navigate, useQuery } from "../../router.js";
import { Charts } from "./charts.js";
import { useRuns } from "./live_runs.js";
import { placeOf, rowsOf, StatusBadge, STATUSES, Took } from "./run.js";

const NARROW = matchMedia("(max-width: 760px)");
const ROW = 42;
const NARROW_ROW = 64;
const TYPING_MS = 250;
const FILTERS = ["status", "tool", "user"];
const ACTIVE = ["running", "pending"];
const WHEN = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "short" });

export function RunList() {
  const query = useQuery();
  const given = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const isActive = given.status === "active";
  const status = isActive ? ACTIVE : [given.status].filter(Boolean);
  const { runs, fresh, busy, error, isEnd, more, again } = useRuns({ ...given, status });
  const [folded, setFolded] = useState(new Set());
  const rows = useMemo(() => rowsOf([...(runs?.values() ?? [])], folded), [runs, folded]);
  const change = (changes) => {
    const left = Object.entries({ ...given, ...changes }).filter(([, value]) => value);
    const text = new URLSearchParams(left).toString();
    navigate(`/runs${text ? `?${text}` : ""}`, { replace: true });
  };
  const fold = (key) => setFolded((now) => {
    const next = new Set(now);
    if (!next.delete(key)) next.add(key);
    return next;
  });
  const isFiltered = Object.values(given).some(Boolean);
  const clear = () => change({ status: "", tool: "", user: "" });
  return html`
    <div class="page-head">
      <h1>Runs</h1>
      <span class="muted" role="status">${runs && standing([...runs.values()])}</span>
    </div>
    <div class="stack">
      <${Charts} />
      <${Filters} given=${given} runs=${runs} isActive=${isActive} onChange=${change} />
      ${error && html`<${Trouble} error=${error} onRetry=${isEnd ? again : more} />`}
      ${!runs && !error && html`<${Busy} label="Loading runs" />`}
      ${runs && !rows.length && isEnd && html`
        <${Nothing} isFiltered=${isFiltered} onClear=${clear} />`}
      ${rows.length > 0 && html`
        <section class="runs" aria-label="Calls">
          ${fresh.length > 0 && html`<${Fresh} count=${fresh.length} onShow=${again} />`}
          <p class="run head" aria-hidden="true">
            <span>Status</span><span>Tool</span><span>Caller</span>
            <span>Surface</span><span>Started</span><span class="took">Duration</span></p>
          <${Rows} rows=${rows} onFold=${fold} />
        </section>`}
      ${runs && html`<${End} isEnd=${isEnd} busy=${busy} count=${runs.size} onMore=${more} />`}
    </div>`;
}

function standing(runs) {
  const count = (status) => runs.filter((run) => run.status === status).length;
  const parts = [[count("running"), "running"], [count("pending"), "waiting for approval"]];
  const counts = parts.filter(([some]) => some)
    .map(([some, words]) => `${some.toLocaleString()} ${words}`);
  return counts.join(", ") || "No running calls";
}

/* Calls that started while the user reads further down. */
function Fresh({ count, onShow }) {
  const show = () => {
    scrollTo(0, 0);
    onShow();
  };
  return html`<p class="runs-fresh" role="status"><${Button} icon="arrow-up" onClick=${show}>
    ${count.toLocaleString()} new ${count === 1 ? "call" : "calls"}</${Button}></p>`;
}

function Filters({ given, runs, isActive, onChange }) {
  const who = useWho();
  const callers = useMemo(() => {
    const found = [...(runs?.values() ?? [])].map(({ caller }) => caller);
    return [...new Set(found)].filter(Boolean).sort();
  }, [runs]);
  return html`
    <form class="runs-filters" role="search" aria-label="Filter calls"
      onSubmit=${(event) => event.preventDefault()}>
      <label class="row runs-only">
        <${Switch} checked=${isActive} label="Only running"
          onChange=${(on) => onChange({ status: on ? "active" : "" })} />
        <span aria-hidden="true">Only running</span></label>
      <${Field} label="Status">${(attributes) => html`
        <select ...${attributes} value=${isActive ? "" : given.status} disabled=${isActive}
          onChange=${(event) => onChange({ status: event.target.value })}>
          <option value="">Any</option>
          ${Object.entries(STATUSES).map(([name, { words }]) => html`
            <option value=${name}>${words}</option>`)}
        </select>`}</${Field}>
      <${ToolFilter} tool=${given.tool} onChange=${(tool) => onChange({ tool })} />
      ${who.may("ADMIN") && html`<${Field} label="Caller">${(attributes) => html`
        <input ...${attributes} type="search" value=${given.user} list="callers" spellcheck=${false}
          onChange=${(event) => onChange({ user: event.target.value.trim() })} />`}</${Field}>
        <datalist id="callers">
          ${callers.map((caller) => html`<option value=${caller} />`)}</datalist>`}
    </form>`;
}

/* Filters once the user stops typing. */
function ToolFilter({ tool, onChange }) {
  const [text, setText] = useState(tool);
  const current = useRef(onChange);
  current.current = onChange; // another filter may change meanwhile
  useEffect(() => {
    const timer = setTimeout(() => text.trim() !== tool && current.current(text.trim()), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => { if (!tool) setText(""); }, [tool]);
  return html`<${Field} label="Tool">${(attributes) => html`
    <input ...${attributes} type="search" value=${text} placeholder="Part of a name"
      spellcheck=${false} onInput=${(event) => setText(event.target.value)} />`}</${Field}>`;
}

function Rows({ rows, onFold }) {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const look = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", look);
    return () => NARROW.removeEventListener("change", look);
  }, []);
  return html`<${Virtual} items=${rows} height=${isNarrow ? NARROW_ROW : ROW} label="Runs"
    render=${(row) => html`<${Row} row=${row} onFold=${onFold} />`} />`;
}

function Row({ row: { key, run, depth, count, isFolded }, onFold }) {
  const indent = { paddingLeft: `${Math.min(depth, 6) * 1.1}rem` };
  const isAlone = run.parent && depth === 0;
  const progress = run.status === "running" ? run.progress : "";
  return html`
    <div class="run">
      <${StatusBadge} run=${run} />
      <span class="tool" style=${indent}>
        ${count > 0
          ? html`<${Fold} count=${count} isFolded=${isFolded} onFold=${() => onFold(key)} />`
          : html`<span class="fold">
              ${depth > 0 && html`<${Icon} name="corner-down-right" />`}</span>`}
        <${Link} to=${placeOf(run.id)}>
          ${run.tool ? html`<${Shown} text=${run.tool} />` : "(no name)"}</${Link}>
        ${isAlone && html`
          <${Link} to=${placeOf(run.parent)} class="muted">in another call</${Link}>`}
        <span class="muted progress">${progress && html`<${Shown} text=${progress} />`}</span>
      </span>
      <span class="caller"><${Shown} text=${run.caller || "–"} />
        ${run.agent && html` <span class="muted">by <${Shown} text=${run.agent} /></span>`}</span>
      <span class="surface">${run.surface}</span>
      <span class="began"><${Began} at=${run.started} /></span>
      <span class="took"><${Took} run=${run} /></span>
    </div>`;
}

function Fold({ count, isFolded, onFold }) {
  return html`
    <button type="button" class="fold" aria-expanded=${!isFolded} onClick=${onFold}
      aria-label=${`${count} nested calls`}>
      <${Icon} name=${isFolded ? "chevron-right" : "chevron-down"} /></button>`;
}

function Began({ at }) {
  const date = new Date(at * 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  return html`<time datetime=${date.toISOString()}>${(isToday ? WHEN : DAY).format(date)}</time>`;
}

function Nothing({ isFiltered, onClear }) {
  const who = useWho();
  if (isFiltered) {
    return html`<${Empty} icon="search-x" title="No matching calls"
      action=${html`<${Button} onClick=${onClear}>Clear filters</${Button}>`}>
      Matching calls appear here when they start.</${Empty}>`;
  }
  return html`<${Empty} icon="activity" title="No calls yet"
    action=${html`<${Link} class="button" to="/">Find a tool to try</${Link}>`}>
    Every call ${who.may("ADMIN") ? "" : "made on your behalf "}appears here when it starts, from a
      person on this page, a program or an agent.</${Empty}>`;
}

/* Load the next page when it comes into view, until there are no more. */
function End({ isEnd, busy, count, onMore }) {
  const place = useRef(null);
  const tried = useRef(-1);
  useEffect(() => {
    if (isEnd || busy || tried.current === count) return undefined;
    const look = ([{ isIntersecting }]) => {
      if (!isIntersecting) return;
      tried.current = count;
      onMore();
    };
    const observer = new IntersectionObserver(look, { rootMargin: "400px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [count, isEnd, busy]);
  const isStuck = !isEnd && !busy && tried.current === count;
  return html`<p class="runs-end muted" ref=${place} role="status">
    ${isStuck && html`<${Button} onClick=${onMore}>Load older calls</${Button}>`}
    ${!isEnd && !isStuck && "Loading…"}
    ${isEnd && count > 20 && `End of list: ${count.toLocaleString()} calls`}</p>`;
}
