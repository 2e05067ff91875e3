// Approvals: pending calls and proposed tools in one list, and past decisions.
import { useWho } from "../app.js";
import { notifying, setNotifying, useEvery } from "../badge.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { Badge, Busy, Button, Dialog, Empty, Icon, Tabs, toast, Trouble } from "../parts.js";
import { Shown } from "../result/text.js";
import { Left } from "./approvals/answer.js";
import { CallDetail } from "./approvals/call.js";
import { DecidedRequests } from "./approvals/decisions.js";
import { useInbox } from "./approvals/inbox.js";
import { origin, ToolDetail } from "./approvals/tool.js";

const LONGEST_BRIEF = 120;
const KEYS = [
  ["j ↓", "next request"],
  ["k ↑", "previous request"],
  ["a", "approve the call, or admit the tool"],
  ["e", "edit the arguments"],
  ["r", "reject, with a reason"],
  ["Esc", "cancel editing or rejecting"],
  ["?", "show shortcuts"],
];

export default function Approvals() {
  const who = useWho();
  const inbox = useInbox(who);
  const [view, setView] = useState("waiting");
  const [isHelping, setHelping] = useState(false);
  const help = () => setHelping(true);
  const count = inbox.items?.filter(({ ended }) => !ended).length;
  return html`
    <div class="page-head">
      <h1>Approvals</h1><span class="grow"></span>
      <${Notifying} />
      <${Button} kind="quiet" icon="keyboard" aria-keyshortcuts="?" onClick=${help}>
        Shortcuts</${Button}>
    </div>
    <${Tabs} label="View" current=${view} onChange=${setView} tabs=${[
      { id: "waiting", title: "Pending", count }, { id: "decided", title: "Decided" },
    ]} />
    <div class="approvals">
      ${view === "waiting" ? html`<${Waiting} who=${who} inbox=${inbox} onHelp=${help} />`
        : html`<${DecidedRequests} who=${who} />`}
    </div>
    ${isHelping && html`<${Dialog} title="Keyboard shortcuts" onClose=${() => setHelping(false)}>
      <dl class="keys">${KEYS.map(([key, words]) => html`
        <dt>${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${words}</dd>`)}</dl>
      <p class="hint">They are inactive while you type. A decided request stays selected until you
        move on, so one key press cannot decide two requests.</p>
    </${Dialog}>`}`;
}

function Waiting({ who, inbox, onHelp }) {
  const { items, left, troubles, end, choose, look } = inbox;
  const [key, setKey] = useState(null);
  const [, tick] = useState(0);
  const acts = useRef({});
  const detail = useRef(null);
  const current = items?.find((item) => item.key === key) ?? null;
  const select = (item) => {
    acts.current = {};
    setKey(item.key);
    choose(item.key);
  };
  useEffect(() => {
    if (items?.length && !current) select(items[0]);
  }, [items, current]);
  useEffect(() => () => choose(null), []); // a decided item is deselected
  useEvery(5_000, () => tick((now) => now + 1)); // the remaining time of pending calls
  useKeys({
    move: (step) => {
      const next = items?.[items.indexOf(current) + step];
      if (!next) return;
      select(next);
      document.getElementById(place(next))?.focus();
    },
    acts, onHelp,
  });
  const open = (item) => {
    select(item);
    detail.current?.scrollIntoView({ block: "nearest" }); // on a narrow screen it lies below
  };
  const settle = (item, sentence) => {
    end(item.key, sentence);
    toast(`${item.name}: ${sentence}`, "ok");
    look();
  };
  const trouble = Object.values(troubles).find(Boolean);
  const Detail = current?.kind === "tool" ? ToolDetail : CallDetail;
  if (!items) return html`<${Busy} label="Loading requests" />`;
  return html`
    ${trouble && html`<${Trouble} error=${trouble} onRetry=${look} />`}
    ${!items.length && !trouble && html`<${Nothing} who=${who} />`}
    ${items.length > 0 && html`
      <div class="inbox">
        <ul aria-label="Pending requests">
          ${items.map((item) => html`<${Entry} key=${item.key} item=${item}
            isCurrent=${item === current} onChoose=${() => open(item)} />`)}
          ${left > 0 && html`<li class="hint">${left.toLocaleString()} more files are pending and
            appear when you have decided these; <code>toolkiln admit</code> shows all.</li>`}
        </ul>
        <article class="panel stack" ref=${detail} aria-label="Selected request">
          ${current && html`<${Detail} key=${current.key} item=${current} who=${who} acts=${acts}
            onEnd=${settle} />`}
        </article>
      </div>`}`;
}

function place({ key }) {
  return `waiting ${key}`;
}

function Entry({ item, isCurrent, onChoose }) {
  const { kind, name, call, tool, ended } = item;
  const [icon, label] = kind === "call" ? ["play", "Call"] : ["file-code", "Tool"];
  return html`
    <li><button type="button" id=${place(item)} class=${ended ? "ended" : ""}
      aria-current=${isCurrent ? "true" : undefined} onClick=${onChoose}>
      <${Icon} name=${icon} label=${label} />
      <span class="name"><${Shown} text=${name} /></span>
      <span class="about">${ended ?? (call
        ? html`<${Shown} text=${call.user || "–"} /><${Left} until=${call.expires} />`
        : html`${tool.by === null ? origin(tool) : html`by <${Shown} text=${tool.by} />`}`)}</span>
      ${call && !ended && html`
        <span class="given"><${Shown} text=${brief(call.arguments)} /></span>`}
      ${tool && !ended && html`
        <${Badge} kind="info">${tool.base ? "change" : "new tool"}</${Badge}>`}
    </button></li>`;
}

function brief(given) {
  const parts = Object.entries(given).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  return parts.join(", ").slice(0, LONGEST_BRIEF);
}

function Nothing({ who }) {
  return html`
    <${Empty} icon="circle-check" title="No pending requests">
      <p>Calls appear here if their tool declares <code>needs_approval=True</code>, or a rule in
        ${" "}<code>toolkiln.toml</code> has <code>effect = "ask"</code>.
        ${who.may("ADMIN") && html` So do tools that agents write
        if <code> authoring = "propose"</code> is set, and files that are new or changed on
        disk.`}</p>
      ${!who.may("APPROVE") && html`<p>You see only requests of your own calls. Deciding on other
        callers' requests requires the privilege <code>APPROVE</code>.</p>`}
      ${!who.may("ADMIN") && html`<p>To see proposed tools, you need the privilege
        <code> ADMIN</code>.</p>`}
    </${Empty}>`;
}

/* Keyboard shortcuts that work wherever the focus is, except in text fields. */
function useKeys({ move, acts, onHelp }) {
  const latest = useRef(null);
  latest.current = (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const isInList = event.target.closest?.(".inbox > ul");
    const step = { j: 1, k: -1, ...(isInList && { ArrowDown: 1, ArrowUp: -1 }) }[event.key];
    const act = { a: "approve", e: "edit", r: "reject" }[event.key];
    if (step) move(step);
    else if (event.key === "?") onHelp();
    else if (act && !event.repeat && acts.current[act]) acts.current[act]();
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    const press = (event) => latest.current(event);
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}

function isTyping(target) {
  const typing = "textarea, select, input:not([type=checkbox])";
  return target.isContentEditable || target.matches?.(typing);
}

function Notifying() {
  const [state, setState] = useState(notifying);
  if (state === "absent") return null;
  if (state === "refused") {
    return html`<span class="hint">The browser blocks notifications from this page</span>`;
  }
  const isOn = state === "on";
  return html`
    <${Button} kind="quiet" icon=${isOn ? "bell-ring" : "bell"} aria-pressed=${isOn}
      title="Notify me about new requests while this tab is in the background"
      onClick=${async () => setState(await setNotifying(!isOn))}>
      ${isOn ? "Notifications are on" : "Notify me"}</${Button}>`;
}
