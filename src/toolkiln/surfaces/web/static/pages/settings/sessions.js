// The sessions that hold, and their end.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Badge, Button, Empty, toast, Trouble } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Answered, Confirm, Names, span, Table, useList } from "./shared.js";

export function Sessions() {
  const who = useWho();
  const sessions = useList("/v1/sessions");
  const [ending, setEnding] = useState(null);
  const end = async () => {
    await api.delete(`/v1/sessions/${encodeURIComponent(ending.trace_id)}`);
    toast("The session has ended");
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
    { title: "Made with", cell: ({ key_id }) => (key_id
      ? html`key <code>${key_id}</code>` : "no key") },
    { title: "Holds for", cell: ({ seconds }) => span(seconds) },
    { title: "", cell: (one) => html`<${Button} kind="danger" onClick=${() => setEnding(one)}
      aria-label=${`End the session ${one.trace_id} of ${one.user}`}>End</${Button}>` },
  ];
  return html`
    <p class="muted">Everybody who can make calls at this moment, newest first. Whoever is on the
      server’s own machine needs none.</p>
    <${Answered} asked=${{ ...sessions, value: sessions.items }} label="Asking for the sessions">
      ${(items) => (items.length
        ? html`<${Table} label="Sessions" columns=${columns} rows=${items}
            id=${(one) => one.trace_id} />`
        : html`<${Empty} icon="monitor" title="No session holds">They begin when somebody shows a
            key, or logs in.</${Empty}>`)}</${Answered}>
    ${sessions.error && sessions.items && html`
      <${Trouble} error=${sessions.error} onRetry=${sessions.again} />`}
    ${sessions.hasMore && html`
      <div><${Button} busy=${sessions.busy} onClick=${sessions.more}>Show more</${Button}></div>`}
    ${ending && html`
      <${Confirm} title="End this session?" action="End it" onConfirm=${end}
        onClose=${() => setEnding(null)}>
        <p>It is <strong><${Shown} text=${ending.user} /></strong>’s. Calls that run for it stop.
          ${ending.trace_id === who.trace_id && " You are logged out."}
          ${ending.key_id
            && " Whoever has the key can begin another; revoke the key to end that."}</p>
      </${Confirm}>`}`;
}
