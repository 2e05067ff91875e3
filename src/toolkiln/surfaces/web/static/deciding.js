// One thing that waits, with all that helps to decide, and the answer: a call or a proposed tool.
import { api } from "./api.js";
import { Arguments } from "./arguments.js";
import { Diff } from "./diff.js";
import { outcome } from "./inbox.js";
import { html, useLayoutEffect, useRef, useState } from "./lib.js";
import { Badge, Busy, Button, Duration, Field, Icon, Tabs, Time, Trouble, useAsked } from "./parts.js";
import { LongText, Shown } from "./result/text.js";
import { Link } from "./router.js";

const REMEMBER = [
  ["", "Ask again each time"],
  ["session", "Not again in this session"],
  ["arguments", "Not again for these arguments"],
];
const SEVERITIES = { error: "bad", warning: "warn", info: "info" };

/* Runs an answer once: what is pressed twice, or while another is on its way, does nothing. */
function useAnswer(item, onEnd) {
  const [state, setState] = useState({ busy: false });
  const isBusy = useRef(false);
  const answer = async (ask) => {
    if (isBusy.current || item.ended) return;
    isBusy.current = true;
    setState({ busy: true });
    try {
      onEnd(item, await ask());
      setState({ busy: false });
    } catch (error) {
      setState({ busy: false, error });
    } finally {
      isBusy.current = false;
    }
  };
  return { ...state, answer };
}

/* A call that waits: its exact arguments, and yes, yes with others, or no. */
export function CallDetail({ item, who, onEnd, acts }) {
  const { call } = item;
  const [mode, setMode] = useState("look");
  const [edited, setEdited] = useState({});
  const [reason, setReason] = useState("");
  const [remember, setRemember] = useState("");
  const { busy, error, answer } = useAnswer(item, onEnd);
  const isOwn = call.user === who.user && !call.approve_own;
  const mayAnswer = !item.ended && !isOwn;
  const path = `/v1/approvals/${encodeURIComponent(call.id)}`;

  const approve = (given) => answer(async () => outcome(await api.post(`${path}/approve`, {
    reason, remember: remember || undefined, arguments: given,
  })));
  const reject = () => answer(async () => outcome(await api.post(`${path}/reject`, { reason })));
  const edit = () => {
    setEdited({ value: call.arguments });
    setMode("edit");
  };
  acts.current = mayAnswer && mode === "look"
    ? { approve: () => approve(), edit, reject: () => setMode("reject") } : {};

  return html`
    <${Head} icon="play" title=${call.tool} to=${`/tools/${encodeURIComponent(call.tool)}`} />
    <dl class="facts">
      <dt>Caller</dt><dd><${Shown} text=${call.user || "–"} /> <span class="muted">in session ${call.session}</span></dd>
      <dt>Why it waits</dt><dd><${Shown} text=${call.why} /></dd>
      <dt>Asked</dt><dd><${Time} at=${call.created} /><${Left} until=${call.expires} ended=${item.ended} /></dd>
      <dt>Call</dt><dd><${Link} to=${`/runs/${encodeURIComponent(call.call_id)}`}><code>${call.call_id}</code></${Link}>
        <span class="muted"> of version <code>${call.digest.slice(0, 12)}</code></span></dd>
    </dl>
    <section class="stack" aria-label="Arguments">
      <h3>Arguments</h3>
      ${mode === "edit"
        ? html`<${Editing} tool=${call.tool} value=${edited.value} onCancel=${() => setMode("look")}
            onChange=${(value, isValid) => setEdited({ value, isValid })}
            onDone=${() => edited.isValid && approve(edited.value)} />`
        : html`<${Arguments} value=${call.arguments} />`}
    </section>
    ${error && html`<${Trouble} error=${error} />`}
    <${Verdict} ended=${item.ended}>
      ${isOwn && html`<p class="hint">This is your own call: somebody else with APPROVE has to answer it,
        unless a rule says <code>approve_own = true</code>.</p>`}
      ${mayAnswer && html`
        <div class="answer">
          <${Reason} value=${reason} onChange=${setReason} isWanted=${mode === "reject"} onDone=${reject}
            kept="told to the caller" onCancel=${() => setMode("look")} />
          ${mode !== "reject" && html`<${Field} label="Remember">${(given) => html`
            <select ...${given} value=${remember} onChange=${(event) => setRemember(event.target.value)}>
              ${REMEMBER.map(([value, words]) => html`<option value=${value}>${words}</option>`)}
            </select>`}</${Field}>`}
        </div>
        <div class="row">
          ${mode === "look" && html`
            <${Button} kind="primary" icon="check" busy=${busy} aria-keyshortcuts="a" onClick=${() => approve()}>Approve</${Button}>
            <${Button} icon="pencil" disabled=${busy} aria-keyshortcuts="e" onClick=${edit}>Edit arguments</${Button}>
            <${Button} kind="danger" icon="x" disabled=${busy} aria-keyshortcuts="r" onClick=${() => setMode("reject")}>Reject…</${Button}>`}
          ${mode === "edit" && html`
            <${Button} kind="primary" icon="check" busy=${busy} disabled=${!edited.isValid}
              onClick=${() => approve(edited.value)}>Approve with these</${Button}>
            <${Button} onClick=${() => setMode("look")}>Cancel</${Button}>`}
          ${mode === "reject" && html`<${Rejecting} busy=${busy} onReject=${reject} onCancel=${() => setMode("look")} />`}
        </div>`}
    </${Verdict}>`;
}

/* A file that waits: what changes, what is wrong with it, what it asks for. */
export function ToolDetail({ item, onEnd, acts }) {
  const { tool } = item;
  const [mode, setMode] = useState("look");
  const [view, setView] = useState("diff");
  const [reason, setReason] = useState("");
  const [grant, setGrant] = useState(false);
  const { busy, error, answer } = useAnswer(item, onEnd);
  const looked = { file: tool.file, digest: tool.digest, base: tool.base, reason };
  const isWrong = tool.findings.some(({ severity }) => severity === "error");

  const admit = () => answer(async () => {
    const done = await api.post("/v1/proposals/admit", { ...looked, grant });
    return `Admitted as version ${done.version}: ${done.tools.join(", ") || "none of its tools is offered"}`;
  });
  const reject = () => answer(async () => {
    const done = await api.post("/v1/proposals/reject", looked);
    return done.served ? "Rejected; the version before is served on" : "Rejected; it is not served";
  });
  acts.current = item.ended || mode !== "look" ? {}
    : { approve: isWrong ? undefined : admit, reject: () => setMode("reject") };

  return html`
    <${Head} icon="file-code" title=${item.name}
      to=${tool.base ? `/tools/${encodeURIComponent(tool.names[0])}` : undefined} />
    <dl class="facts">
      <dt>File</dt><dd><code><${Shown} text=${tool.file} /></code> <span class="muted">${origin(tool)}</span></dd>
      ${tool.by !== null && html`<dt>Proposed by</dt><dd><${Shown} text=${tool.by} />, <${Time} at=${tool.at} /></dd>`}
      <dt>Version</dt><dd><code>${tool.digest.slice(0, 12)}</code>
        <span class="muted"> ${tool.base ? "in the place of " : "the first of this file"}</span>
        ${tool.base && html`<code>${tool.base.slice(0, 12)}</code>`}</dd>
    </dl>
    <${Rights} tool=${tool} />
    <${Findings} findings=${tool.findings} />
    <section class="stack" aria-label="Source">
      <${Tabs} label="How the source is shown" current=${view} onChange=${setView} tabs=${[
        { id: "diff", title: tool.base ? "What changes" : "New file" },
        { id: "source", title: "Source" },
      ]} />
      ${view === "diff" ? html`<${Diff} unified=${tool.diff} />`
        : html`<${LongText} text=${tool.source} label="Source" />`}
    </section>
    ${error && html`<${Trouble} error=${error} />`}
    <${Verdict} ended=${item.ended}>
      <div class="answer">
        <${Reason} value=${reason} onChange=${setReason} isWanted=${mode === "reject"} onDone=${reject}
          kept="goes to the audit" onCancel=${() => setMode("look")} />
      </div>
      ${mode === "look" && tool.grants.length > 0 && html`
        <label class="row"><input type="checkbox" checked=${grant} onChange=${(event) => setGrant(event.target.checked)} />
          Grant all that it asks for</label>`}
      <div class="row">
        ${mode === "look" ? html`
          <${Button} kind="primary" icon="check" busy=${busy} disabled=${isWrong} aria-keyshortcuts="a" onClick=${admit}>
            ${grant ? "Admit and grant" : "Admit"}</${Button}>
          <${Button} kind="danger" icon="x" disabled=${busy} aria-keyshortcuts="r" onClick=${() => setMode("reject")}>Reject…</${Button}>
          ${isWrong && html`<span class="hint">It has errors and cannot be admitted.</span>`}
          ${busy && html`<span class="hint" role="status">Trying it out in the sandbox…</span>`}`
          : html`<${Rejecting} busy=${busy} onReject=${reject} onCancel=${() => setMode("look")} />`}
      </div>
    </${Verdict}>`;
}

function Head({ icon, title, to }) {
  const name = html`<${Shown} text=${title} />`;
  return html`<h2 class="row"><${Icon} name=${icon} />${to ? html`<${Link} to=${to}>${name}</${Link}>` : name}</h2>`;
}

/* How it was decided, or the means to. */
function Verdict({ ended, children }) {
  if (!ended) return html`<div class="verdict stack">${children}</div>`;
  return html`<p class="verdict done" role="status"><${Icon} name="circle-check" /> ${ended}.</p>`;
}

function Rejecting({ busy, onReject, onCancel }) {
  return html`
    <${Button} kind="danger" icon="x" busy=${busy} onClick=${onReject}>Reject</${Button}>
    <${Button} onClick=${onCancel}>Cancel</${Button}>`;
}

function Reason({ value, onChange, isWanted, kept, onDone, onCancel }) {
  const input = useRef(null);
  // At once: the next key that is pressed belongs to it.
  useLayoutEffect(() => { if (isWanted) input.current.focus(); }, [isWanted]);
  const press = (event) => {
    if (!isWanted || event.isComposing) return;
    if (event.key === "Enter") onDone();
    if (event.key === "Escape") onCancel();
  };
  return html`<${Field} label=${isWanted ? `Why not? (${kept})` : "Reason (optional)"}>${(given) => html`
    <input ...${given} ref=${input} maxlength="2000" value=${value} onKeyDown=${press}
      onInput=${(event) => onChange(event.target.value)} />`}</${Field}>`;
}

/* The form of the tool, with the arguments of the call. */
function Editing({ tool, value, onChange, onDone, onCancel }) {
  const box = useRef(null);
  const form = useAsked(async (signal) => {
    const asked = api.get(`/v1/tools/${encodeURIComponent(tool)}`, null, { signal });
    const [{ SchemaForm }, { parameters }] = await Promise.all([import("./form.js"), asked]);
    return { SchemaForm, parameters };
  }, [tool]);
  useLayoutEffect(() => box.current?.querySelector("input, textarea, select")?.focus(), [form.value]);
  const press = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onDone();
    if (event.key === "Escape") onCancel();
  };
  if (form.error) return html`<${Trouble} error=${form.error} onRetry=${form.again} />`;
  if (!form.value) return html`<${Busy} />`;
  return html`
    <div ref=${box} onKeyDown=${press}>
      <${form.value.SchemaForm} schema=${form.value.parameters} value=${value} onChange=${onChange} />
    </div>`;
}

/* How long a call waits still. */
export function Left({ until, ended }) {
  const seconds = until - Date.now() / 1000;
  if (ended || seconds <= 0) return null;
  return html`<span class=${seconds < 60 ? "left soon" : "left"}> · <${Duration} seconds=${Math.round(seconds)} /> left</span>`;
}

export function origin({ state }) {
  return { proposed: "written by a tool or over HTTP", changed: "changed on disk", new: "new on disk" }[state];
}

function Rights({ tool }) {
  const known = new Set(tool.rights.map((one) => one.tool));
  const before = tool.grants.filter((one) => !known.has(one.tool));
  if (!tool.grants.length && !tool.rights.length) {
    return html`<p class="muted"><${Icon} name="shield-check" /> It asks for no rights beyond the sandbox.</p>`;
  }
  return html`
    <section class="stack" aria-label="Rights">
      <h3>Asks for${tool.base ? " beyond the version served" : ""}</h3>
      <ul class="rights">
        ${tool.rights.map((one) => html`<li><code>${one.tool}</code> ${wishes(one).map((wish) => html`
          <${Badge} kind="warn" icon=${wish.icon}><${Shown} text=${wish.text} /></${Badge}>`)}</li>`)}
        ${before.map((one) => html`<li class="muted"><code>${one.tool}</code> nothing more than before</li>`)}
      </ul>
    </section>`;
}

function wishes(one) {
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
  const told = findings.filter(({ severity }) => severity !== "info");
  if (!told.length) return null;
  return html`
    <section class="stack" aria-label="Findings">
      <h3>Findings</h3>
      <ul class="findings">${told.map(({ severity, rule, line, message, fix }) => html`
        <li><${Badge} kind=${SEVERITIES[severity]}>${severity}</${Badge}
          > <span>Line ${line}: <${Shown} text=${message} /></span> <code class="muted">${rule}</code>
          <div class="hint"><${Shown} text=${fix} /></div></li>`)}</ul>
    </section>`;
}
