// The permissions that a tool requests and those it is granted.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Badge, Button, Dialog, Trouble, toast } from "../../parts.js";

/* All requested permissions: {icon, kind, name, isGranted}. */
export function requested({ rights, granted }) {
  const grant = granted ?? {};
  return [
    ...rights.network.map((name) => ({
      icon: "globe", kind: "Network", name, isGranted: covers(grant.network ?? [], name),
    })),
    ...rights.secrets.map((name) => ({
      icon: "key-round", kind: "Secret", name, isGranted: (grant.secrets ?? []).includes(name),
    })),
    ...(rights.workspace ? [{
      icon: "folder", kind: "Workspace", name: rights.workspace,
      isGranted: [rights.workspace, "write"].includes(grant.workspace),
    }] : []),
    ...(rights.sandbox ? [] : [{
      icon: "shield-off", kind: "Sandbox", name: "to run without it",
      isGranted: grant.sandbox === false,
    }]),
  ];
}

/* `*.example.org` covers the names below it. */
function covers(granted, host) {
  return granted.some((each) =>
    each === host || (each.startsWith("*.") && host.endsWith(each.slice(1))));
}

export function Permissions({ tool, path, onChange }) {
  const who = useWho();
  const [isAsking, ask] = useState(false);
  const all = requested(tool);
  const missing = all.filter(({ isGranted }) => !isGranted);
  const canBeGranted = tool.file !== null && (missing.length > 0 || !tool.reviewed);
  return html`
    <section class="panel stack" aria-labelledby="rights">
      <div class="row"><h2 id="rights">Permissions</h2><span class="grow"></span>
        ${canBeGranted && who.may("ADMIN") && html`
          <${Button} icon="shield-check" onClick=${() => ask(true)}>
            ${missing.length > 0 ? "Grant requested permissions" : "Admit this version"}
          </${Button}>`}</div>
      ${!tool.reviewed && html`<p><${Badge} kind="warn" icon="user-x">not reviewed</${Badge}>
        A caller wrote this version. It has no grants and no settings until a person with ADMIN
        admits it.</p>`}
      ${all.length === 0
        ? html`<p class="muted">It requests no permissions: no network, no files, no secrets.</p>`
        : html`<ul class="rights">${all.map((right) => html`<${Right} right=${right} />`)}</ul>`}
      ${tool.rights.needs_approval && html`<p>A person has to approve ${
        tool.rights.approval_function ? "some of its calls" : "each of its calls"}.</p>`}
      ${tool.rights.capabilities.length > 0 && html`<p class="muted">It says that it uses: ${
        tool.rights.capabilities.join(", ")}.</p>`}
      ${tool.requirements.length > 0 && html`<p class="muted">Packages: ${
        tool.requirements.map((each, at) => html`${at > 0 && ", "}<code>${each}</code>`)}</p>`}
    </section>
    ${isAsking && html`<${Granting} tool=${tool} path=${path} missing=${missing}
      onClose=${() => ask(false)} onDone=${onChange} />`}`;
}

function Right({ right: { kind, name, isGranted } }) {
  return html`
    <li><span class="muted">${kind}</span> <code>${name}</code>
      ${isGranted === undefined ? null : isGranted
        ? html`<${Badge} kind="ok" icon="check">granted</${Badge}>`
        : html`<${Badge} kind="warn" icon="circle-slash">not granted</${Badge}>`}</li>`;
}

function Granting({ tool, path, missing, onClose, onDone }) {
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const act = async () => {
    setBusy(true);
    try {
      // Only for the version on display: another one may request more.
      await api.patch(path, { granted: true }, { headers: { "If-Match": `"${tool.digest}"` } });
      toast(missing.length > 0 ? `Granted requested permissions to ${tool.title}`
        : `${tool.title} is admitted`);
      onDone();
      onClose();
    } catch (error) {
      setTrouble(error);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${missing.length > 0 ? `Grant this to ${tool.title}?`
      : `Admit this version of ${tool.title}?`} onClose=${onClose}>
      <div class="stack">
        <ul class="rights">${missing.map((right) => html`
          <${Right} right=${{ ...right, isGranted: undefined }} />`)}</ul>
        <p>This admits the version. It holds for later ones that a person with ADMIN admits, and
          for the other tools of ${
          html`<code>${tool.file}</code>`} with what they ask for.</p>
        ${trouble && html`<${Trouble} error=${trouble} />`}
        <div class="row">
          <${Button} kind="primary" icon="shield-check" busy=${busy}
            onClick=${act}>${missing.length > 0 ? "Grant" : "Admit"}</${Button}>
          <${Button} onClick=${onClose}>Cancel</${Button}></div>
      </div>
    </${Dialog}>`;
}
