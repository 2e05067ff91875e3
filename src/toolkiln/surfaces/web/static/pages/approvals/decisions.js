// Decided and expired requests: what, by whom and why.
import { api } from "../../api.js";
import { Arguments } from "./arguments.js";
import { outcome } from "./inbox.js";
import { html, useEffect, useState } from "../../lib.js";
import { Badge, Busy, Button, Empty, Time, toast, Trouble } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Link } from "../../router.js";

const KINDS = { approved: "ok", used: "ok", rejected: "bad" };

export function DecidedRequests({ who }) {
  const [items, setItems] = useState(null);
  const [cursor, setCursor] = useState(undefined);
  const [error, setError] = useState(null);
  const read = async (from) => {
    try {
      const found = await api.get("/v1/approvals", { state: "all", cursor: from });
      const decided = found.items.filter(({ state }) => state !== "pending");
      setItems((before) => [...(from ? before : []), ...decided]);
      setCursor(found.next_cursor);
      setError(null);
    } catch (problem) {
      setError(problem);
    }
  };
  useEffect(() => { read(); }, []);
  if (error) return html`<${Trouble} error=${error} onRetry=${() => read()} />`;
  if (!items) return html`<${Busy} label="Loading decisions" />`;
  return html`
    ${!items.length && html`<${Empty} icon="history" title="No recent decisions">
      Decisions on calls are listed here for a day.</${Empty}>`}
    ${items.length > 0 && html`<ul class="decided" aria-label="Decisions">
      ${items.map((item) => html`
        <li key=${item.id}><${Loaded} item=${item} who=${who} /></li>`)}</ul>`}
    ${cursor && html`
      <${Button} icon="chevrons-down" onClick=${() => read(cursor)}>Show older</${Button}>`}
    ${who.may("ADMIN") && html`<p class="hint">Decisions on tools are in the audit log:${" "}
      <${Link} to="/audit?act=admit">admitted</${Link}>,${" "}
      <${Link} to="/audit?act=reject">rejected</${Link}>.</p>`}`;
}

function Loaded({ item, who }) {
  const [isOpen, setOpen] = useState(false);
  return html`
    <details onToggle=${(event) => setOpen(event.target.open)}>
      <summary>
        <strong><${Shown} text=${item.tool} /></strong>
        <${Badge} kind=${KINDS[item.state] ?? "quiet"}>${outcome(item)}</${Badge}>
        <span>for <${Shown} text=${item.user || "–"} /></span>
        ${item.reason && html`<q><${Shown} text=${item.reason} /></q>`}
        <span class="muted when"><${Time} at=${item.decided ?? item.created} /></span>
      </summary>
      ${isOpen && html`<div class="stack">
        <${Arguments} value=${item.edited ?? item.arguments}
          before=${item.edited && item.arguments} />
        ${item.remember && who.may("APPROVE") && html`<${Forget} item=${item} />`}
      </div>`}
    </details>`;
}

function Forget({ item }) {
  const [isDone, setDone] = useState(false);
  const forget = async () => {
    try {
      const { forgotten } = await api.post(`/v1/approvals/${encodeURIComponent(item.id)}/forget`);
      toast(forgotten ? "The next call asks for approval again"
        : "The approval was no longer remembered");
      setDone(true);
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  const scope = item.remember === "session" ? "the rest of the session" : "these arguments";
  return html`<p class="row">Remembered for ${scope}.
    <${Button} disabled=${isDone} onClick=${forget}>Forget approval</${Button}></p>`;
}
