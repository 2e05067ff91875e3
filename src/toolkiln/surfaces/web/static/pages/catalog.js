// The catalog: toolkits and tools as cards, search as you type, filters and switches.
import { api } from "../api.js";
import { useWho } from "../app.js";
import { ToolCard, ToolkitHead } from "./catalog/cards.js";
import { FILTERS, chosen, foundIn, grouped } from "./catalog/selection.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { useLive } from "../live.js";
import { Badge, Button, Copy, Empty, Icon, Trouble, toast, useRequest } from "../parts.js";
import { Link, navigate, useQuery } from "../router.js";
import { VirtualCards } from "./catalog/virtual_cards.js";

const PAUSE = 180; // milliseconds between the last key and the search
const PATIENCE = 400; // milliseconds that the previous cards stay during a search
const FRESH = 4000; // milliseconds that changes are highlighted
const MOST_FOUND = 50;
const REM = parseFloat(getComputedStyle(document.documentElement).fontSize);
const HEIGHTS = { card: 8.6 * REM, why: 1.5 * REM, head: 3.4 * REM };

export default function Catalog() {
  const who = useWho();
  const { value: view, error, again } = useRequest(
    (signal) => api.get("/v1/catalog", {}, { signal }), [],
  );
  const options = useOptions();
  const search = useSearch(options.q, view);
  const fresh = useFresh(again);
  const [busy, setBusy] = useState(new Set());
  const field = useRef(null);
  const first = useRef(null);
  useSlash(field);
  useKeptScroll(view);

  const shown = useMemo(
    () => (view ? arranged(view, options, search) : null), [view, options, search],
  );
  const mayWrite = who.may("WRITE_TOOLS");
  const patch = async (name, path, enabled) => {
    setBusy((now) => new Set(now).add(name));
    try {
      await api.patch(path, { enabled });
    } catch (problem) {
      toast([problem.message, problem.hint].filter(Boolean).join(": "), "bad");
    }
    setBusy((now) => new Set([...now].filter((one) => one !== name)));
    again();
  };
  const switches = (kind, name) => (who.may("ADMIN")
    ? (enabled) => patch(`${kind} ${name}`, `/v1/${kind}/${encodeURIComponent(name)}`, enabled)
    : null);

  return html`
    <div class="page-head">
      <h1>Catalog</h1>
      <span class="muted grow tally" role="status">
        ${view?.tools.length > 0 && said(shown, search)}</span>
      ${mayWrite && html`<${Link} to="/write" class="button primary">
        <${Icon} name="plus" />Write a tool</${Link}>`}
    </div>
    <${Finder} field=${field} first=${first} options=${options} search=${search} view=${view} />
    ${error && html`<${Trouble} error=${error} onRetry=${again} />`}
    ${search.error && html`<${Unanswered} search=${search} />`}
    ${!view && !error && html`<${Waiting} />`}
    ${view && shown.count === 0 && html`
      <${Nothing} view=${view} options=${options} mayWrite=${mayWrite} />`}
    ${view && shown.count > 0 && html`
      <${VirtualCards} groups=${shown.groups} label="Tools" first=${first}
        cardHeight=${HEIGHTS.card + (shown.reasons.size ? HEIGHTS.why : 0)}
        headHeight=${HEIGHTS.head}
        card=${(tool) => html`<${ToolCard} tool=${tool} why=${shown.reasons.get(tool.name)}
          isFresh=${fresh.has(tool.name)} isBusy=${busy.has(`tools ${tool.name}`)}
          onSwitch=${switches("tools", tool.name)} />`}
        head=${(group) => html`<${ToolkitHead} kit=${group.kit} items=${group.items}
          core=${group.core} isBusy=${busy.has(`toolkits ${group.key}`)}
          onSwitch=${switches("toolkits", group.key)} />`} />`}`;
}

/* The query and filters: kept in the address, so that going back leads to the same cards. */
function useOptions() {
  const text = useQuery().toString();
  return useMemo(() => read(text), [text]);
}

function read(text) {
  const query = new URLSearchParams(text);
  return {
    q: query.get("q") ?? "", toolkit: query.get("toolkit") ?? "",
    only: new Set(query.getAll("only")), hidden: query.has("hidden"),
  };
}

/* Read from the current address: a filter may have been chosen while the user typed. */
function change(changes) {
  const { q, toolkit, only, hidden } = { ...read(location.search), ...changes };
  const query = new URLSearchParams();
  if (q) query.set("q", q);
  if (toolkit) query.set("toolkit", toolkit);
  for (const one of only) query.append("only", one);
  if (hidden) query.set("hidden", "");
  navigate(`/${query.size ? `?${query}` : ""}`, { replace: true });
}

/* What the server finds for a text: {text, answer} or {text, error}; without either it takes its
   time, and words are looked for meanwhile. `busy`: it is awaited. */
function useSearch(text, view) {
  const [state, setState] = useState({ text: "", busy: false });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!text.trim()) {
      setState({ text: "", busy: false });
      return undefined;
    }
    const control = new AbortController();
    setState((now) => ({ ...now, busy: true }));
    const slow = setTimeout(
      () => setState((now) => (now.text === text ? now : { text, busy: true })), PATIENCE,
    );
    api.get("/v1/search", { q: text, k: MOST_FOUND }, { signal: control.signal }).then(
      (answer) => control.signal.aborted || setState({ text, answer, busy: false }),
      (error) => control.signal.aborted || setState({ text, error, busy: false }),
    ).finally(() => clearTimeout(slow));
    return () => {
      clearTimeout(slow);
      control.abort();
    };
  }, [text, view, turn]);
  return useMemo(() => ({ ...state, again: () => setTurn((now) => now + 1) }), [state]);
}

/* Reload the catalog when something changes, and highlight the changes for a while. */
function useFresh(again) {
  const [fresh, setFresh] = useState(new Set());
  const timer = useRef(0);
  useLive("catalog", ({ added, changed }) => {
    again();
    setFresh(new Set([...added, ...changed]));
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setFresh(new Set()), FRESH);
  });
  useLive("approvals", again);
  useLive("again", again);
  useEffect(() => () => clearTimeout(timer.current), []);
  return fresh;
}

/* "/" focuses the search, except in a text field. */
function useSlash(field) {
  useEffect(() => {
    const press = (event) => {
      if (event.key !== "/") return;
      if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/* Each history entry keeps its scroll position. */
function useKeptScroll(view) {
  useLayoutEffect(() => {
    if (view && history.state?.scroll) scrollTo(0, history.state.scroll);
  }, [Boolean(view)]);
  useEffect(() => {
    let timer = 0;
    const keep = () => {
      clearTimeout(timer);
      timer = setTimeout(() => history.replaceState({ scroll: scrollY }, ""), 200);
    };
    addEventListener("scroll", keep, { passive: true });
    return () => {
      clearTimeout(timer);
      removeEventListener("scroll", keep);
    };
  }, []);
}

/* The cards to show: {groups, count, reasons}; search results in their order. */
function arranged(view, options, search) {
  const among = chosen(view.tools, options);
  if (!search.text) return { ...grouped(view.toolkits, among, view.tools), reasons: new Map() };
  const { items, reasons } = foundIn(among, search);
  return { groups: [{ key: "found", items }], count: items.length, reasons };
}

function said({ count, groups }, search) {
  const many = `${count.toLocaleString()} ${count === 1 ? "tool" : "tools"}`;
  if (search.text) return `${many} for “${search.text}”`;
  const kits = groups.filter(({ kit }) => kit).length;
  return kits ? `${many} · ${kits.toLocaleString()} ${kits === 1 ? "toolkit" : "toolkits"}` : many;
}

function Finder({ field, first, options, search, view }) {
  const [text, setText] = useState(options.q);
  const timer = useRef(0);
  const sent = useRef(options.q);
  useEffect(() => {
    // The address must not undo what was typed since.
    if (options.q !== sent.current) setText(options.q);
    sent.current = options.q;
  }, [options.q]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (value) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = value.trim();
      change({ q: sent.current });
    }, value.trim() ? PAUSE : 0);
  };
  const press = (event) => {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      first.current?.();
    } else if (event.key === "Escape" && text) {
      event.preventDefault();
      type("");
    }
  };
  return html`
    <div class="finder" role="search">
      <label class="find"><span class="hidden-text">Find tools</span>
        <${Icon} name=${search.busy ? "loader" : "search"} />
        <input ref=${field} type="search" value=${text} maxlength="500" autocomplete="off"
          spellcheck=${false} placeholder="What should it do? Or a name…"
          aria-keyshortcuts="/" aria-busy=${search.busy}
          onInput=${(event) => type(event.target.value)} onKeyDown=${press} />
        <kbd aria-hidden="true">/</kbd></label>
      <div class="chips">${view && html`<${Chips} view=${view} options=${options} />`}</div>
    </div>`;
}

function Chips({ view, options }) {
  const flip = (id) => {
    const only = new Set(options.only);
    if (!only.delete(id)) only.add(id);
    change({ only });
  };
  const counted = useMemo(
    () => FILTERS.map((one) => ({ ...one, count: view.tools.filter(one.fits).length })), [view],
  );
  const offered = counted.filter(({ id, count }) => count > 0 || options.only.has(id));
  return html`
    ${view.toolkits.length > 0 && html`
      <select class="chip" aria-label="Toolkit" value=${options.toolkit}
        onChange=${(event) => change({ toolkit: event.target.value })}>
        <option value="">All toolkits</option>
        ${view.toolkits.map(({ name, title }) => html`
          <option key=${name} value=${name}>${title}</option>`)}
      </select>`}
    ${offered.map(({ id, title, count }) => html`
      <button key=${id} type="button" class="chip" aria-pressed=${options.only.has(id)}
        onClick=${() => flip(id)}>
        ${title} <span class="muted">${count.toLocaleString()}</span></button>`)}
    ${view.hidden > 0 && html`
      <button type="button" class="chip" aria-pressed=${options.hidden}
        onClick=${() => change({ hidden: !options.hidden })}>
        <${Icon} name=${options.hidden ? "eye" : "eye-off"} />
        Show hidden <span class="muted">${view.hidden.toLocaleString()}</span>
      </button>`}`;
}

function Unanswered({ search }) {
  return html`
    <div class="unanswered" role="status">
      <${Badge} kind="warn" icon="triangle-alert">Search by words only</${Badge}>
      <span>Search failed (${search.error.message}). These tools contain the words in their name or
        description.</span>
      <${Button} kind="quiet" icon="rotate-cw" onClick=${search.again}>Search again</${Button}>
    </div>`;
}

function Waiting() {
  return html`
    <p class="hidden-text" role="status">Loading…</p>
    <div class="waiting" aria-hidden="true">${Array.from({ length: 12 }, (_, index) => html`
      <div key=${index} class="card" style=${{ height: `${HEIGHTS.card}px` }}></div>`)}</div>`;
}

/* The reason why no card is shown, and what to do. */
function Nothing({ view, options, mayWrite }) {
  const isNarrowed = options.q || options.toolkit || options.only.size;
  if (view.tools.length && isNarrowed) {
    const clear = () => change({ q: "", toolkit: "", only: new Set() });
    return html`
      <${Empty} icon="search-x" title="No matching tools"
        action=${html`<${Button} onClick=${clear}>Show all</${Button}>`}>
        Try fewer words or filters${
          mayWrite && html`, or <${Link} to="/write">write one</${Link}>`}.
      </${Empty}>`;
  }
  if (view.tools.length) {
    return html`
      <${Empty} icon="eye-off" title=${`All ${view.hidden.toLocaleString()} tools are hidden`}
        action=${html`
          <${Button} onClick=${() => change({ hidden: true })}>Show hidden</${Button}>`}>
        They work, but lists omit them by default.
      </${Empty}>`;
  }
  if (!mayWrite) {
    return html`
      <${Empty} icon="wrench" title="No tools for you">
        You may not run any tool. The operator of this server decides that with rules.
      </${Empty}>`;
  }
  const command = "toolkiln new greet";
  return html`
    <${Empty} icon="wrench" title="No tools yet"
      action=${html`<${Link} to="/write" class="button primary">
        <${Icon} name="pencil" />Write the first one</${Link}>`}>
      <p>A tool is a Python function in a file in the tools folder. Write it here, or start one in
        a terminal:</p>
      <p class="command"><code>${command}</code>
        <${Copy} text=${command} label="Copy command" /></p>
      <p>It appears here as soon as it is served. If it does not, <code>toolkiln status</code> shows
        why.</p>
    </${Empty}>`;
}
