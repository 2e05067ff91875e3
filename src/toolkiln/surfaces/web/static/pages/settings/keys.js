// API keys: create, show once, list, revoke.
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Badge, Button, Copy, Dialog, Empty, toast, Trouble } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { NewKey } from "./new_key.js";
import { Loaded, Confirm, Day, Names, Table, useList } from "./shared.js";

export function Keys() {
  const keys = useList("/v1/keys");
  const [isMaking, setMaking] = useState(false);
  const [made, setMade] = useState(null);
  const [revoking, setRevoking] = useState(null);
  const onMade = (key) => {
    setMaking(false);
    setMade(key);
    keys.again();
  };
  const revoke = async () => {
    await api.delete(`/v1/keys/${encodeURIComponent(revoking.id)}`);
    toast("Key revoked");
    setRevoking(null);
    keys.again();
  };
  const make = html`
    <${Button} kind="primary" icon="plus" onClick=${() => setMaking(true)}>Create key</${Button}>`;
  return html`
    <div class="row">
      <p class="muted grow">A program sends a key with each request; a person signs in with it. It
        acts for one user, with the privileges it was created with.</p>
      ${keys.items?.length > 0 && make}
    </div>
    <${Loaded} request=${{ ...keys, value: keys.items }} label="Loading keys">
      ${(items) => (items.length
        ? html`<${Table} label="Keys" columns=${columns(setRevoking)} rows=${items} />`
        : html`<${Empty} icon="key-round" title="No keys" action=${make}>Create one for each
          program or person that should access this server.</${Empty}>`)}</${Loaded}>
    ${keys.error && keys.items && html`<${Trouble} error=${keys.error} onRetry=${keys.again} />`}
    ${keys.hasMore && html`
      <div><${Button} busy=${keys.busy} onClick=${keys.more}>Show more</${Button}></div>`}
    ${isMaking && html`<${NewKey} onMade=${onMade} onClose=${() => setMaking(false)} />`}
    ${made && html`<${Made} made=${made} onClose=${() => setMade(null)} />`}
    ${revoking && html`
      <${Confirm} title="Revoke this key?" action="Revoke key" onConfirm=${revoke}
        onClose=${() => setRevoking(null)}>
        <p><strong><${Shown} text=${revoking.name} /></strong> of <${Shown}
          text=${revoking.user} /> will stop working, and all sessions opened with it will end at
          once. You cannot undo this.</p>
      </${Confirm}>`}`;
}

function columns(onRevoke) {
  return [
    { title: "Name", cell: ({ name, id }) => html`
      <strong><${Shown} text=${name} /></strong><br /><code class="muted">${id}</code>` },
    { title: "User", cell: ({ user }) => html`<${Shown} text=${user} />` },
    { title: "Scope", cell: ({ groups, privileges, tools }) => html`
      <${Permissions} ...${{ groups, privileges, tools }} />` },
    { title: "Created", cell: ({ created, created_by }) => html`
      <${Day} at=${created} /><br /><span class="hint">by <${Shown} text=${created_by} /></span>` },
    { title: "Last used", cell: ({ last_used }) => (last_used
      ? html`<${Day} at=${last_used} />` : "never") },
    { title: "State", cell: (key) => html`<${State} ...${{ state: key }} />` },
    { title: "", cell: (key) => key.holds && html`
      <${Button} kind="danger" onClick=${() => onRevoke(key)}
        aria-label=${`Revoke ${key.name}`}>Revoke</${Button}>` },
  ];
}

function Permissions({ groups, privileges, tools }) {
  const isAll = tools.length === 1 && tools[0] === "*";
  return html`
    ${privileges.length > 0 && html`<${Names} names=${privileges} />`}
    ${groups.length > 0 && html`
      <div class="hint">groups <${Shown} text=${groups.join(", ")} /></div>`}
    <div class="hint">
      ${isAll ? "all tools" : html`tools <${Shown} text=${tools.join(", ")} />`}</div>`;
}

function State({ state: { holds, revoked, expires } }) {
  if (revoked) return html`<${Badge}>revoked</${Badge}>`;
  if (!holds) return html`<${Badge}>expired</${Badge}>`;
  return html`<${Badge} kind="ok">valid</${Badge}>
    <div class="hint">
      ${expires ? html`until <${Day} at=${expires} />` : "until it is revoked"}</div>`;
}

/* The new key, which is shown only once. */
function Made({ made, onClose }) {
  return html`
    <${Dialog} title="Copy the key now" onClose=${onClose}>
      <div class="stack">
        <p><strong><${Shown} text=${made.name} /></strong> is shown only once. The server stores
          only its hash.</p>
        <p class="row secret"><code>${made.key}</code>
          <${Copy} text=${made.key} label="Copy key" /></p>
        <p class="hint">Programs send it as <code>Authorization: Bearer …</code>; people sign in
          with it.</p>
        <div class="row end">
          <${Button} kind="primary" onClick=${onClose}>I have copied it</${Button}></div>
      </div>
    </${Dialog}>`;
}
