// A pending call: its exact arguments; approve, approve with changes, or reject.
import { api } from "../../api.js";
import { mayAnswer } from "../../badge.js";
import { html, useLayoutEffect, useRef, useState } from "../../lib.js";
import { Busy, Button, Field, Time, Trouble, useRequest } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Link } from "../../router.js";
import { Head, Left, Reason, Rejecting, useResponse, Verdict } from "./answer.js";
import { Arguments } from "./arguments.js";
import { outcome } from "./inbox.js";

const REMEMBER = [
  ["", "Ask every time"],
  ["session", "Do not ask again in this session"],
  ["arguments", "Do not ask again for these arguments"],
];

/* `acts` receives the current keyboard actions. */
export function CallDetail({ item, who, onEnd, acts }) {
  const { call } = item;
  const [mode, setMode] = useState("look");
  const [edited, setEdited] = useState({});
  const [reason, setReason] = useState("");
  const [remember, setRemember] = useState("");
  const { busy, error, answer } = useResponse(item, onEnd);
  const isRefused = !mayAnswer(call, who);
  const isOpen = !item.ended && !isRefused;
  const path = `/v1/approvals/${encodeURIComponent(call.id)}`;

  const approve = (given) => answer(async () => outcome(await api.post(`${path}/approve`, {
    reason, remember: remember || undefined, arguments: given,
  })));
  const reject = () => answer(async () => outcome(await api.post(`${path}/reject`, { reason })));
  const edit = () => {
    setEdited({ value: call.arguments });
    setMode("edit");
  };
  const askWhyNot = () => setMode("reject");
  const leave = () => setMode("look");
  acts.current = isOpen && mode === "look"
    ? { approve: () => approve(), edit, reject: askWhyNot } : {};

  const buttons = {
    look: () => html`
      <${Button} kind="primary" icon="check" busy=${busy} aria-keyshortcuts="a"
        onClick=${() => approve()}>Approve</${Button}>
      <${Button} icon="pencil" disabled=${busy} aria-keyshortcuts="e"
        onClick=${edit}>Edit arguments</${Button}>
      <${Button} kind="danger" icon="x" disabled=${busy} aria-keyshortcuts="r"
        onClick=${askWhyNot}>Reject…</${Button}>`,
    edit: () => html`
      <${Button} kind="primary" icon="check" busy=${busy} disabled=${!edited.isValid}
        onClick=${() => approve(edited.value)}>Approve edited call</${Button}>
      <${Button} onClick=${leave}>Cancel</${Button}>`,
    reject: () => html`<${Rejecting} busy=${busy} onReject=${reject} onCancel=${leave} />`,
  };
  return html`
    <${Head} icon="play" title=${call.tool} to=${`/tools/${encodeURIComponent(call.tool)}`} />
    <${Facts} call=${call} ended=${item.ended} />
    <section class="stack" aria-label="Arguments">
      <h3>Arguments</h3>
      ${mode === "edit"
        ? html`<${Editing} tool=${call.tool} value=${edited.value} onCancel=${leave}
            onChange=${(value, isValid) => setEdited({ value, isValid })}
            onDone=${() => edited.isValid && approve(edited.value)} />`
        : html`<${Arguments} value=${call.arguments} />`}
    </section>
    ${error && html`<${Trouble} error=${error} />`}
    <${Verdict} ended=${item.ended}>
      ${isRefused && html`<p class="hint">This is your own call: another person with APPROVE has to
        decide${call.approve_own === false
          ? html`, because the rule says <code>approve_own = false</code>`
          : html`, unless a rule says <code>approve_own = true</code>`}.</p>`}
      ${isOpen && html`
        ${call.user === who.user && html`<p class="hint">This is your own call: the audit log marks
          the approval as self-approved.</p>`}
        <div class="answer">
          <${Reason} value=${reason} onChange=${setReason} kept="shown to the caller"
            isWanted=${mode === "reject"} onDone=${reject} onCancel=${leave} />
          ${mode !== "reject" && html`<${Remember} value=${remember} onChange=${setRemember} />`}
        </div>
        <div class="row">${buttons[mode]()}</div>`}
    </${Verdict}>`;
}

function Facts({ call, ended }) {
  const run = `/runs/${encodeURIComponent(call.call_id)}`;
  return html`
    <dl class="facts">
      <dt>Caller</dt>
      <dd><${Shown} text=${call.user || "–"} />
        <span class="muted"> in session ${call.session}</span></dd>
      <dt>Reason</dt><dd><${Shown} text=${call.why} /></dd>
      <dt>Requested</dt>
      <dd><${Time} at=${call.created} /><${Left} until=${call.expires} ended=${ended} /></dd>
      <dt>Call</dt>
      <dd><${Link} to=${run}><code>${call.call_id}</code></${Link}>
        <span class="muted"> of version <code>${call.digest.slice(0, 12)}</code></span></dd>
    </dl>`;
}

function Remember({ value, onChange }) {
  return html`<${Field} label="Remember">${(given) => html`
    <select ...${given} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${REMEMBER.map(([scope, words]) => html`<option value=${scope}>${words}</option>`)}
    </select>`}</${Field}>`;
}

/* The form of the tool, with the arguments of the call. */
function Editing({ tool, value, onChange, onDone, onCancel }) {
  const box = useRef(null);
  const form = useRequest(async (signal) => {
    const request = api.get(`/v1/tools/${encodeURIComponent(tool)}`, null, { signal });
    const [{ SchemaForm }, { parameters }] = await Promise.all([import("../../form.js"), request]);
    return { SchemaForm, parameters };
  }, [tool]);
  useLayoutEffect(() => {
    box.current?.querySelector("input, textarea, select")?.focus();
  }, [form.value]);
  const press = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onDone();
    if (event.key === "Escape") onCancel();
  };
  if (form.error) return html`<${Trouble} error=${form.error} onRetry=${form.again} />`;
  if (!form.value) return html`<${Busy} />`;
  const { SchemaForm, parameters } = form.value;
  return html`
    <div ref=${box} onKeyDown=${press}>
      <${SchemaForm} schema=${parameters} value=${value} onChange=${onChange} />
    </div>`;
}
