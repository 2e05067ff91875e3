// One run: its arguments, events, output and nested calls, and a button to cancel it.
import { api } from "../../api.js";
import { parsed } from "../../exact_number.js";
import { html, useEffect, useRef, useState } from "../../lib.js";
import { useLive } from "../../live.js";
import {
  Busy, Button, Dialog, Duration, Empty, Icon, Time, toast, Trouble, useRequest,
} from "../../parts.js";
import { sizeOf } from "../../result/files.js";
import { LongText, Shown, WholeOutput } from "../../result/text.js";
import { Tree } from "../../result/tree.js";
import { Link, navigate } from "../../router.js";
import { RecordDetail } from "../audit/record.js";
import { ISOLATION, isRunning, placeOf, StatusBadge, Took } from "./run.js";

const PAUSE_MS = 250;
const ASKED = "waiting for approval";

export function RunDetail({ id }) {
  const request = useRun(id);
  const { value: run, error } = request;
  if (error?.status === 404) return html`<${Gone} id=${id} />`;
  if (!run && error) return html`<${Trouble} error=${error} onRetry=${request.again} />`;
  if (!run) return html`<${Busy} label="Loading run" />`;
  return html`
    <p class="crumbs"><${Link} to="/runs"><${Icon} name="arrow-left" />Runs</${Link}>
      ${run.parent && html`
        <span>Nested in <${Link} to=${placeOf(run.parent)}>another call</${Link}></span>`}</p>
    <div class="page-head">
      <h1><${Shown} text=${run.tool || "(no name)"} /></h1>
      <span role="status"><${StatusBadge} run=${run} /></span>
      <span class="muted took"><${Took} run=${run} /></span>
      <span class="grow"></span>
      <${Link} class="button" to=${`/tools/${encodeURIComponent(run.tool)}`}>Open tool</${Link}>
      ${isRunning(run) && html`<${Cancel} run=${run} onDone=${request.again} />`}
    </div>
    <div class="run-detail">
      <div class="stack">
        ${error && html`<${Trouble} error=${error} onRetry=${request.again} />`}
        <${Waiting} run=${run} />
        <${Failure} error=${run.error} />
        <${Part} title="Arguments"><${Arguments} text=${run.arguments} /></${Part}>
        <${Part} title="Output"><${Output} run=${run} /></${Part}>
        <${Part} title="Log"><${Log} run=${run} /></${Part}>
        ${run.children.length > 0 && html`
          <${Part} title="Nested calls"><${Children} run=${run} /></${Part}>`}
      </div>
      <div class="stack">
        <${Part} title="Details"><${Facts} run=${run} /></${Part}>
        <${Part} title="Audit record"><${Audited} run=${run} /></${Part}>
      </div>
    </div>`;
}

/* The current state of the run, loaded again after changes, but never twice at once. */
function useRun(id) {
  const ask = (signal) => api.get(`/v1/runs/${encodeURIComponent(id)}`, null, { signal });
  const request = useRequest(ask, [id]);
  const current = useRef(request);
  current.current = request;
  const timer = useRef(null);
  const look = () => {
    timer.current = current.current.busy ? setTimeout(look, PAUSE_MS) : null;
    if (!timer.current) current.current.again();
  };
  useLive("run", (event) => {
    if (event.id === id || event.parent === id) timer.current ??= setTimeout(look, PAUSE_MS);
  });
  useLive("again", request.again);
  useEffect(() => () => clearTimeout(timer.current), []);
  return request;
}

function Gone({ id }) {
  return html`<${Empty} icon="search-x" title="Run not found"
    action=${html`<${Link} class="button" to="/runs">All runs</${Link}>`}>
    <p><code><${Shown} text=${id} /></code> is not visible to you, or has expired: a server keeps
      the last thousand runs, and the audit log, which requires <code>ADMIN</code>, has the
        others.</p></${Empty}>`;
}

function Part({ title, children }) {
  return html`<section class="panel run-part"><h2>${title}</h2>${children}</section>`;
}

function Cancel({ run, onDone }) {
  const [isAsking, setAsking] = useState(false);
  const [state, setState] = useState({ busy: false });
  const close = () => { setAsking(false); setState({ busy: false }); };
  const cancel = async () => {
    setState({ busy: true });
    try {
      const { status } = await api.post(`/v1/runs/${encodeURIComponent(run.id)}/cancel`);
      toast(status === "cancelled" ? "The call was cancelled" : "Cancellation requested");
    } catch (error) {
      if (error.code !== "too_late") {
        setState({ busy: false, error });
        return;
      }
      toast("The call had already ended");
    }
    close();
    onDone();
  };
  return html`
    <${Button} kind="danger" icon="circle-stop" onClick=${() => setAsking(true)}>Cancel</${Button}>
    ${isAsking && html`<${Dialog} title="Cancel this call?" onClose=${close}>
      <div class="stack">
        <p><strong><${Shown} text=${run.tool} /></strong> and its running nested calls will be
          stopped. What it has already done stays, and its caller sees who cancelled it.</p>
        ${state.error && html`<${Trouble} error=${state.error} />`}
        <div class="row run-answers">
          <${Button} onClick=${close} autofocus>Keep running</${Button}>
          <${Button} kind="danger" icon="circle-stop" busy=${state.busy} onClick=${cancel}>
            Cancel call</${Button}>
        </div>
      </div></${Dialog}>`}`;
}

function Waiting({ run }) {
  if (run.status !== "pending") return null;
  return html`<p class="run-waiting"><${Icon} name="hand" />Waiting for approval.
    <${Link} to="/approvals">Open approvals</${Link}></p>`;
}

function Failure({ error }) {
  if (!error) return null;
  const where = [error.type, error.line && `line ${error.line}`, error.code]
    .filter(Boolean).join(", ");
  return html`
    <div class="failure">
      <p class="failure-message"><${Shown} text=${error.message} /></p>
      ${error.hint && html`<p><strong>Hint:</strong> <${Shown} text=${error.hint} /></p>`}
      ${error.traceback && html`<pre><${Shown} text=${error.traceback} /></pre>`}
      <p class="hint">${where}</p>
    </div>`;
}

function Arguments({ text }) {
  if (!text) {
    return html`<p class="muted">Not known any more: the audit keeps them of privileged calls
      only.</p>`;
  }
  let value;
  try {
    value = parsed(text);
  } catch {
    return html`<p class="hint">Truncated, as in the audit log.</p>
      <${LongText} text=${text} label="Arguments" />`;
  }
  if (value === null || !Object.keys(value).length) return html`<p class="muted">None.</p>`;
  return html`<${Tree} value=${value} />`;
}

function Output({ run }) {
  const [isWhole, setWhole] = useState(false);
  const { truncation, text, length, error } = run;
  if (isRunning(run)) return html`<p class="muted">The call has not ended yet.</p>`;
  if (text === null) {
    return html`<p class="muted">Not kept: it was cancelled, or another server ran it, or this one
      was restarted.</p>`;
  }
  if (!text || (error && text.startsWith("error: "))) return html`<p class="muted">None.</p>`;
  const read = (offset, limit, signal) =>
    api.get(`/v1/outputs/${encodeURIComponent(truncation.handle)}`, { offset, limit }, { signal });
  const [shown, total] = truncation ? [truncation.shown, truncation.total] : [length, length];
  return html`
    ${truncation && html`<p class="row">
      <span>Its caller got ${shown.toLocaleString()} of ${total.toLocaleString()} characters.</span>
      ${truncation.handle && html`<${Button} onClick=${() => setWhole(!isWhole)}>
        ${isWhole ? "Show truncated output" : "Show full output"}</${Button}>`}</p>`}
    ${length > text.length && !isWhole && html`<p class="hint">
      The first ${text.length.toLocaleString()} of ${length.toLocaleString()} characters.</p>`}
    ${isWhole ? html`<${WholeOutput} read=${read} total=${total} label="Output" />`
      : html`<${LongText} text=${text} label="Output" />`}
    ${run.notes.map((note) => html`<p class="hint"><${Shown} text=${note} /></p>`)}`;
}

/* Follows the end, unless the user scrolled up. */
function Log({ run }) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    if (box.current && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [run.events.length]);
  if (!run.events.length) {
    return html`<p class="muted">
      ${isRunning(run) ? "No messages yet." : "No messages."}</p>`;
  }
  const look = ({ target: { scrollHeight, scrollTop, clientHeight } }) => {
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 20;
  };
  return html`
    ${run.events_left_out > 0 && html`<p class="hint">
      ${run.events_left_out.toLocaleString()} earlier ones are not kept.</p>`}
    <div class="run-log" role="log" aria-label="Log" tabindex="0" ref=${box} onScroll=${look}>
      ${run.events.map(({ at, kind, level, text }, number) => html`
        <p key=${number} class=${level ?? kind}>
          <span class="log-at">+${Math.max(0, at - run.started).toFixed(2)} s</span>
          <span class="log-kind">${level ?? kind}</span>
          <span class="log-text">
            <${Shown} text=${kind === "pending" ? ASKED : text.replace(/\n$/, "")} /></span>
        </p>`)}
    </div>`;
}

/* Nested calls, each with a bar that shows when it ran. */
function Children({ run }) {
  const now = Date.now() / 1000;
  const end = run.started + (run.duration ?? Math.max(.001, now - run.started));
  const share = (seconds) => `${Math.min(100, Math.max(0, 100 * seconds / (end - run.started)))}%`;
  return html`
    <ul class="run-children">${run.children.map((child) => html`
      <li key=${child.id}>
        <${StatusBadge} run=${child} />
        <${Link} to=${placeOf(child.id)}><${Shown} text=${child.tool} /></${Link}>
        <span class="took"><${Took} run=${child} /></span>
        <span class="span-box" aria-hidden="true"><span class=${`span ${child.status}`} style=${{
          left: share(child.started - run.started),
          width: share(child.duration ?? end - child.started),
        }}></span></span>
      </li>`)}
    </ul>`;
}

function Facts({ run }) {
  const ofCaller = `/runs?user=${encodeURIComponent(run.caller)}`;
  const facts = [
    ["Started", html`<${Time} at=${run.started} />`],
    ["Duration", html`<${Took} run=${run} />`],
    ["Processor", run.cpu !== null && html`<${Duration} seconds=${run.cpu} />`],
    ["Memory", run.memory && sizeOf(run.memory)],
    ["Isolation", run.isolation && (ISOLATION[run.isolation] ?? run.isolation)],
    ["Caller", run.caller && html`
      <${Link} to=${ofCaller}><${Shown} text=${run.caller} /></${Link}>`],
    ["Agent", run.agent && html`<${Shown} text=${run.agent} />`],
    ["Surface", run.surface],
    ["Session", run.session && html`<code>${run.session}</code>`],
    ["Version", run.digest && html`<code>${run.digest.slice(0, 16)}</code>`],
    ["Call", html`<code><${Shown} text=${run.id} /></code>`],
  ];
  return html`
    <dl class="record-facts">${facts.filter(([, value]) => value).map(([name, value]) => html`
      <dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

function Audited({ run: { record, detail, ...run } }) {
  const said = detail && html`<${Shown} text=${detail} />`;
  if (record) {
    const filter = (changes) => navigate(`/audit?${new URLSearchParams(changes)}`);
    return html`
      <details><summary>Number ${record.seq.toLocaleString()}${said && html`: ${said}`}</summary>
        <${RecordDetail} record=${record} onFilter=${filter} /></details>`;
  }
  if (isRunning(run)) {
    return html`<p class="muted">Written when the call ends, or after half a second.</p>`;
  }
  return said ? html`<p>${said}</p>` : html`<p class="muted">No details.</p>`;
}
