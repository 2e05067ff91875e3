// The valid sessions, and a button to end each.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Badge, Button, Empty, toast, Trouble } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Loaded, Confirm, Names, span, Table, useList } from "./shared.js";

export function Sessions() {
  const who = useWho();
  const sessions = useList("/v1/sessions");
  const [ending, setEnding] = useState(null);
  const end = async () => {
    await api.delete(`/v1/sessions/${encodeURIComponent(ending.trace_id)}`);
    toast("Session ended");
    setEnding(null);
    sessions.again();
  };
  const columns = [
    { title: "User", cell: (one) => html`<strong><${Shown} text=${one.user} /></strong>
      ${one.trace_id === who.trace_id && html` <${Badge} kind="info">this page</${Badge}>`}
      ${one.agent_id && html`
        <br /><span class="hint">by <${Shown} text=${one.agent_id} /></span>`}` },
    { title: "Session", cell: ({ trace_id }) => html`<code>${trace_id}</code>` },
    { title: "Privileges", cell: ({ privileges }) => html`<${Names} names=${privileges} />` },
    { title: "Opened with", cell: ({ key_id }) => (key_id
      ? html`key <code>${key_id}</code>` : "no key") },
    { title: "Expires in", cell: ({ seconds }) => span(seconds) },
    { title: "", cell: (one) => html`<${Button} kind="danger" onClick=${() => setEnding(one)}
      aria-label=${`End the session ${one.trace_id} of ${one.user}`}>End</${Button}>` },
  ];
  return html`
    <p class="muted">Callers with a valid session, newest first. The operator on the server’s own
      machine needs none.</p>
    <${Loaded} request=${{ ...sessions, value: sessions.items }} label="Loading sessions">
      ${(items) => (items.length
        ? html`<${Table} label="Sessions" columns=${columns} rows=${items}
            id=${(one) => one.trace_id} />`
        : html`<${Empty} icon="monitor" title="No sessions">A session begins when a caller presents
          a key or signs in.</${Empty}>`)}</${Loaded}>
    ${sessions.error && sessions.items && html`
      <${Trouble} error=${sessions.error} onRetry=${sessions.again} />`}
    ${sessions.hasMore && html`
      <div><${Button} busy=${sessions.busy} onClick=${sessions.more}>Show more</${Button}></div>`}
    ${ending && html`
      <${Confirm} title="End this session?" action="End session" onConfirm=${end}
        onClose=${() => setEnding(null)}>
        <p>It belongs to <strong><${Shown} text=${ending.user} /></strong>. Its running calls will
          stop.
          ${ending.trace_id === who.trace_id && " You will be signed out."}
          ${ending.key_id
            && " The key can open another session; revoke the key to prevent that."}</p>
      </${Confirm}>`}`;
}
