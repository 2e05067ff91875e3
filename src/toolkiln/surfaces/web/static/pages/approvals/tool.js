// A proposal: what changes, findings, requested and inherited permissions; admit or reject.
import { api } from "../../api.js";
import { Diff } from "../../diff.js";
import { html, useState } from "../../lib.js";
import { Badge, Button, Icon, Tabs, Time, Trouble } from "../../parts.js";
import { LongText, Shown } from "../../result/text.js";
import { Head, Reason, Rejecting, useResponse, Verdict } from "./answer.js";

const SEVERITIES = { error: "bad", warning: "warn" };
const ORIGINS = {
  proposed: "written by a tool or over HTTP", changed: "changed on disk", new: "new on disk",
};

/* `acts` receives the current keyboard actions. */
export function ToolDetail({ item, onEnd, acts }) {
  const { tool } = item;
  const [mode, setMode] = useState("look");
  const [reason, setReason] = useState("");
  const [grant, setGrant] = useState(false);
  const { busy, error, answer } = useResponse(item, onEnd);
  const looked = { file: tool.file, digest: tool.digest, base: tool.base, reason };
  const isWrong = tool.findings.some(({ severity }) => severity === "error");

  const admit = () => answer(async () => {
    const { version, tools } = await api.post("/v1/proposals/admit", { ...looked, grant });
    return `Admitted as version ${version}: ${tools.join(", ") || "none of its tools is served"}`;
  });
  const reject = () => answer(async () => {
    const { served } = await api.post("/v1/proposals/reject", looked);
    return served ? "Rejected; the previous version is still served" : "Rejected; it is not served";
  });
  const askWhyNot = () => setMode("reject");
  const leave = () => setMode("look");
  acts.current = item.ended || mode !== "look" ? {}
    : { approve: isWrong ? undefined : admit, reject: askWhyNot };

  return html`
    <${Head} icon="file-code" title=${item.name}
      to=${tool.base && tool.names[0] && `/tools/${encodeURIComponent(tool.names[0])}`} />
    <${Facts} tool=${tool} />
    <${RequestedPermissions} tool=${tool} />
    <${Inherited} inherits=${tool.inherits} />
    ${tool.base_reviewed === false && html`
      <p role="note"><${Badge} kind="warn" icon="user-x">not reviewed</${Badge}>
        ${" "}No person has reviewed the served version, so the whole file is shown as
        new.</p>`}
    <${Findings} findings=${tool.findings} />
    <${Source} tool=${tool} />
    ${error && html`<${Trouble} error=${error} />`}
    <${Verdict} ended=${item.ended}>
      <div class="answer">
        <${Reason} value=${reason} onChange=${setReason} kept="recorded in the audit log"
          isWanted=${mode === "reject"} onDone=${reject} onCancel=${leave} />
      </div>
      ${mode === "look" && tool.grants.length > 0 && html`
        <label class="row">
          <input type="checkbox" checked=${grant}
            onChange=${(event) => setGrant(event.target.checked)} />
          Grant everything it requests</label>`}
      <div class="row">
        ${mode === "look" ? html`
          <${Button} kind="primary" icon="check" busy=${busy} disabled=${isWrong}
            aria-keyshortcuts="a" onClick=${admit}>
            ${grant ? "Admit and grant" : "Admit"}</${Button}>
          <${Button} kind="danger" icon="x" disabled=${busy} aria-keyshortcuts="r"
            onClick=${askWhyNot}>Reject…</${Button}>
          ${isWrong && html`<span class="hint">It has errors and cannot be admitted.</span>`}
          ${busy && html`<span class="hint" role="status">Trying it in the sandbox…</span>`}`
          : html`<${Rejecting} busy=${busy} onReject=${reject} onCancel=${leave} />`}
      </div>
    </${Verdict}>`;
}

/* Where a file comes from, in a few words. */
export function origin({ state }) {
  return ORIGINS[state];
}

function Facts({ tool }) {
  return html`
    <dl class="facts">
      <dt>File</dt>
      <dd><code><${Shown} text=${tool.file} /></code>
        <span class="muted"> ${origin(tool)}</span></dd>
      ${tool.by !== null && html`<dt>Proposed by</dt>
        <dd><${Shown} text=${tool.by} />, <${Time} at=${tool.at} /></dd>`}
      <dt>Version</dt>
      <dd><code>${tool.digest.slice(0, 12)}</code>
        <span class="muted"> ${tool.base ? "replaces " : "first version of this file"}</span>
        ${tool.base && html`<code>${tool.base.slice(0, 12)}</code>`}</dd>
    </dl>`;
}

function RequestedPermissions({ tool }) {
  if (!tool.grants.length && !tool.rights.length) {
    return html`<p class="muted"><${Icon} name="shield-check" /> It requests no permissions beyond
      the sandbox.</p>`;
  }
  const more = new Set(tool.rights.map((one) => one.tool));
  const unchanged = tool.grants.filter((one) => !more.has(one.tool));
  return html`
    <section class="stack" aria-label="Requested permissions">
      ${tool.rights.length > 0 && html`
        <h3>${tool.base ? "Requests more than the served version" : "Requests"}</h3>
        <${Permissions} items=${tool.rights} kind="warn" words=${requests} />`}
      ${unchanged.length > 0 && html`
        <h3>Requests the same as the served version</h3>
        <${Permissions} items=${unchanged} kind="quiet" words=${requests} />`}
    </section>`;
}

/* Permissions that it inherits when it is admitted, even without a new grant. */
function Inherited({ inherits }) {
  if (!inherits.length) return null;
  return html`
    <section class="stack" aria-label="Inherited permissions">
      <h3>Inherits when you admit it</h3>
      <${Permissions} items=${inherits} kind="warn" words=${inheritance} />
      <p class="hint">Granted or set earlier for this name. Admitting this version gives it all of
        these, even if you grant nothing now.</p>
    </section>`;
}

function Permissions({ items, kind, words }) {
  return html`
    <ul class="rights">${items.map((one) => html`
      <li><code>${one.tool}</code>${words(one).map(({ icon, text }) => html`
        <${Badge} kind=${kind} icon=${icon}><${Shown} text=${text} /></${Badge}>`)}</li>`)}</ul>`;
}

function inheritance(one) {
  return [
    one.network.length && { icon: "globe", text: `network: ${one.network.join(", ")}` },
    one.secrets.length && { icon: "key", text: `secrets: ${one.secrets.join(", ")}` },
    one.workspace && { icon: "folder", text: `workspace: ${one.workspace}` },
    one.without_sandbox && { icon: "shield-off", text: "runs without the sandbox" },
    one.settings.length && { icon: "settings", text: `settings: ${one.settings.join(", ")}` },
    one.user_settings && { icon: "settings", text: "settings of its callers" },
  ].filter(Boolean);
}

function requests(one) {
  return [
    one.network.length && { icon: "globe", text: `network: ${one.network.join(", ")}` },
    one.secrets.length && { icon: "key", text: `secrets: ${one.secrets.join(", ")}` },
    one.capabilities.length && { icon: "zap", text: one.capabilities.join(", ") },
    one.workspace && { icon: "folder", text: `workspace: ${one.workspace}` },
    one.without_sandbox && { icon: "shield-off", text: "to run without the sandbox" },
    one.without_approval && { icon: "user-x", text: "to be called without approval" },
  ].filter(Boolean);
}

function Findings({ findings }) {
  const shown = findings.filter(({ severity }) => severity in SEVERITIES);
  if (!shown.length) return null;
  return html`
    <section class="stack" aria-label="Findings">
      <h3>Findings</h3>
      <ul class="findings">${shown.map(({ severity, rule, line, message, fix }) => html`
        <li><${Badge} kind=${SEVERITIES[severity]}>${severity}</${Badge}>${" "}
          Line ${line}: <${Shown} text=${message} /> <code class="muted">${rule}</code>
          <div class="hint"><${Shown} text=${fix} /></div></li>`)}</ul>
    </section>`;
}

function Source({ tool }) {
  const [view, setView] = useState("diff");
  const tabs = [
    { id: "diff", title: tool.base ? "Changes" : "New file" },
    { id: "source", title: "Source" },
  ];
  return html`
    <section class="stack" aria-label="Source">
      <${Tabs} label="Source view" current=${view} onChange=${setView} tabs=${tabs} />
      ${view === "diff" ? html`<${Diff} unified=${tool.diff} />`
        : html`<${LongText} text=${tool.source} label="Source" />`}
    </section>`;
}
