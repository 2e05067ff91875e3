// The result of a call. Everything a tool returned is text here: it becomes
// elements only through result/, which lets none of it act as markup or code.
import { api } from "./api.js";
import { write } from "./form/json.js";
import { html, useMemo, useState } from "./lib.js";
import { Badge, Button, Copy, Duration, Tabs, Time } from "./parts.js";
import { Files, sizeOf } from "./result/files.js";
import { Table, columnsOf } from "./result/table.js";
import { LongText, Shown, WholeOutput } from "./result/text.js";
import { Tree } from "./result/tree.js";
import { Link } from "./router.js";

export const STATUSES = {
  ok: { words: "Done", kind: "ok", icon: "circle-check" },
  failed: { words: "Failed", kind: "bad", icon: "circle-x" },
  invalid: { words: "Arguments refused, nothing ran", kind: "warn", icon: "circle-alert" },
  denied: { words: "Denied", kind: "bad", icon: "shield-x" },
  timeout: { words: "Timed out", kind: "bad", icon: "timer-off" },
  killed: { words: "Exceeded a limit", kind: "bad", icon: "octagon-x" },
  cancelled: { words: "Cancelled", kind: "quiet", icon: "circle-slash" },
  unavailable: { words: "Could not run", kind: "bad", icon: "server-off" },
  running: { words: "Running in the background", kind: "info", icon: "loader" },
  pending: { words: "Waiting for a person's approval", kind: "warn", icon: "hand" },
  lost: { words: "Lost: the server died before the call ended", kind: "bad", icon: "circle-x" },
};
const SANDBOXES = {
  A: "sandbox A: separate namespaces, from a fork server",
  B: "sandbox B: a separate bwrap",
  C: "sandbox C, reduced: Landlock, seccomp and limits",
  none: "no sandbox: an ordinary process",
};

/* Render a Result, or a Task with or without one. */
export function ResultView({ result: given }) {
  const isTask = given && "state" in given;
  if (isTask && !given.result) return html`<${Waiting} task=${given} />`;
  const result = isTask ? given.result : given;
  return html`
    <div class=${`result ${result.status}`}>
      <${Head} result=${result} />
      ${result.error && html`<${Failure} error=${result.error} />`}
      <${Value} result=${result} />
      ${result.files?.length > 0 && html`
        <${Part} title="Files"><${Files} files=${result.files} /><//>`}
      <${Printed} title="Standard output" text=${result.stdout} />
      <${Printed} title="Standard error" text=${result.stderr} />
      ${
        result.messages?.length > 0 &&
        html`<${Part} title="Messages">
        <${Messages} messages=${result.messages} /><//>`
      }
      ${
        result.injected_tools?.length > 0 &&
        html`<${Part} title="Offered tools">
        <p class="row">${result.injected_tools.map(
          (name) => html`
          <${Link} to=${`/tools/${encodeURIComponent(name)}`}>${name}</${Link}>`,
        )}</p><//>`
      }
      ${
        result.notes?.length > 0 &&
        html`<${Part} title="Notes">
        <ul class="notes">
          ${result.notes.map((note) => html`<li><${Shown} text=${note} /></li>`)}</ul><//>`
      }
    </div>`;
}

function Part({ title, children }) {
  return html`<section class="result-part"><h3>${title}</h3>${children}</section>`;
}

function Waiting({ task }) {
  const { words, kind, icon } = STATUSES[task.state] ?? STATUSES.running;
  return html`
    <div class="result">
      <p class="result-head"><${Badge} kind=${kind} icon=${icon}>${words}</${Badge}>
        ${task.progress && html`<${Shown} text=${task.progress} />`}</p>
      <p>${task.state === "pending" && html`
          <${Link} to="/approvals">Open approvals</${Link}> or `}
        <${Link} to=${`/runs/${encodeURIComponent(task.id)}`}>watch this call</${Link}>.</p>
    </div>`;
}

function Head({ result }) {
  const known = STATUSES[result.status] ?? { words: result.status, kind: "quiet" };
  const { started, duration, cpu, memory } = result.timing ?? {};
  const facts = [
    result.sandbox &&
      html`<span title=${SANDBOXES[result.sandbox]}>${
        result.sandbox === "none" ? "no sandbox" : `sandbox ${result.sandbox}`
      }</span>`,
    cpu !== null &&
      cpu !== undefined &&
      html`<span>processor <${Duration} seconds=${cpu} /></span>`,
    memory && html`<span>memory ${sizeOf(memory)}</span>`,
    started > 0 && html`<span><${Time} at=${started} /></span>`,
  ].filter(Boolean);
  return html`
    <div class="result-head">
      <${Badge} kind=${known.kind} icon=${known.icon}>${known.words}</${Badge}>
      <span>${duration !== undefined && html`<${Duration} seconds=${duration} />`}</span>
      <span class="result-facts">${facts}</span>
      <${Copy} text=${() => write(result)} label="Copy result as JSON" />
    </div>`;
}

function Failure({ error }) {
  const where = [error.type, error.line && `line ${error.line}`, error.code]
    .filter(Boolean)
    .join(", ");
  return html`
    <div class="failure">
      <p class="failure-message"><${Shown} text=${error.message} /></p>
      ${error.hint && html`<p><strong>Hint:</strong> <${Shown} text=${error.hint} /></p>`}
      ${error.traceback && html`<pre><${Shown} text=${error.traceback} /></pre>`}
      <p class="hint">${where}${error.retryable && ". The same call may work later"}${
        error.retry_after ? `: wait ${Math.ceil(error.retry_after)} s` : ""
      }</p>
    </div>`;
}

/* The return value, in the views that suit it. */
function Value({ result }) {
  const { value, text = "", error } = result;
  const columns = useMemo(() => columnsOf(value), [value]);
  const isTree = value !== null && typeof value === "object";
  const isSaid = Boolean(text) && !(error && text.startsWith(`error: ${error.message}`) && !isTree);
  const views = [
    columns && { id: "table", title: "Table" },
    isTree && { id: "tree", title: "Tree" },
    isSaid && { id: "text", title: isTree ? "As the model reads it" : "Text" },
  ].filter(Boolean);
  const [picked, setPicked] = useState(null);
  const view = views.find(({ id }) => id === picked)?.id ?? views[0]?.id;
  if (!views.length) {
    return result.status === "ok"
      ? html`<p class="muted">It returned ${value === "" ? "an empty text" : "nothing"}.</p>`
      : null;
  }
  return html`
    <section class="result-part" aria-label="Return value">
      ${
        views.length > 1 &&
        html`<div class="views">
        <${Tabs} tabs=${views} current=${view} label="View" onChange=${setPicked} /></div>`
      }
      ${view === "table" && html`<${Table} rows=${value} columns=${columns} />`}
      ${
        view === "tree" &&
        html`<div class="copied"><${Tree} value=${value} />
        <${Copy} text=${() => write(value)} label="Copy value as JSON" /></div>`
      }
      ${view === "text" && html`<${ModelText} result=${result} />`}
    </section>`;
}

/* The text for the model, and the full output if it was truncated. */
function ModelText({ result }) {
  const [isWhole, setWhole] = useState(false);
  const cut = result.truncation;
  if (!cut) return html`<${LongText} text=${result.text} label="text" />`;
  const read = (offset, limit, signal) =>
    api.get(`/v1/outputs/${encodeURIComponent(cut.handle)}`, { offset, limit }, { signal });
  return html`
    <p class="row truncation"><${Badge} kind="warn" icon="scissors">Truncated</${Badge}>
      The model reads ${cut.shown.toLocaleString()} of ${cut.total.toLocaleString()} characters.
      ${
        cut.handle
          ? html`<${Button} onClick=${() => setWhole(!isWhole)}>
              ${isWhole ? "Show text for the model" : "Show full output"}</${Button}>`
          : "The rest was not stored."
      }</p>
    ${
      isWhole
        ? html`<${WholeOutput} read=${read} total=${cut.total} label="whole output" />`
        : html`<${LongText} text=${result.text} label="text" />`
    }`;
}

function Printed({ title, text }) {
  if (!text) return null;
  return html`<${Part} title=${title}>
    <${LongText} text=${text} label=${title.toLowerCase()} /><//>`;
}

function Messages({ messages }) {
  return html`<ul class="messages">${messages.map(
    (message, at) => html`
    <li key=${at}>
      <${typeof message === "string" ? Shown : Tree} text=${message} value=${message} /></li>`,
  )}</ul>`;
}
