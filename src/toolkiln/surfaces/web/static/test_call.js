// A test call: its form, the running call, and its result.
import { Problem } from "./api.js";
import { SchemaForm, usableDefault } from "./form.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "./lib.js";
import { Button, Icon, Trouble } from "./parts.js";
import { ResultView } from "./result.js";
import { Shown } from "./result/text.js";
import { Link } from "./router.js";

const MOST_LINES = 1_000;
const BROKEN_OFF = {
  message: "the connection broke before the call ended",
  hint: "see the list of runs for its result",
};
const NOTHING = { lines: [], left: 0, progress: null, pending: null };

/* `run(arguments, signal)` yields events like `api.stream`; the last one ends the call. */
export function TestCall({ schema, run, submitLabel = "Run", initial }) {
  const [state, setState] = useState(() => ({
    value: initial ?? usableDefault(schema),
    isValid: false,
  }));
  const { call, start, stop } = useCall(run);
  const problems = useMemo(() => problemsOf(call.end), [call.end]);
  const isRunning = call.since !== null;
  const id = useId();

  const submit = () => !isRunning && state.isValid && start(state.value);
  const press = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    submit();
  };
  return html`
    <div class="trying" onKeyDown=${press}>
      <div class="trying-columns">
        <div class="trying-form">
          <${SchemaForm} schema=${schema} value=${state.value} problems=${problems}
            onChange=${(value, isValid) => setState({ value, isValid })} />
          <div class="row trying-buttons">
            <${Button} kind="primary" icon="play" disabled=${!state.isValid} busy=${isRunning}
              onClick=${submit} aria-describedby=${`${id}-keys`}>${submitLabel}</${Button}>
            <${Button} icon="square" disabled=${!isRunning} onClick=${stop}>Stop</${Button}>
            <span class="hint" id=${`${id}-keys`}><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
            ${isRunning && html`<${Elapsed} since=${call.since} />`}
          </div>
        </div>
        <div class="trying-outcome">
          ${!isRunning && !call.end && html`
            <p class="muted trying-waits">The result appears here.</p>`}
          <${Live} call=${call} isRunning=${isRunning} />
          <${End} end=${call.end} />
        </div>
      </div>
    </div>`;
}

/* One call at a time: its events so far, and its result. */
function useCall(run) {
  const [call, setCall] = useState({ ...NOTHING, since: null, end: null });
  const control = useRef(null);
  useEffect(() => () => control.current?.abort(), []);

  const start = async (args) => {
    const own = new AbortController();
    control.current = own;
    const gather = gathering(
      (update) => own === control.current && setCall((now) => ({ ...now, ...update })),
    );
    setCall({ ...NOTHING, since: Date.now(), end: null });
    const end = await ended(run(args, own.signal), gather, own.signal);
    gather.flush();
    if (own === control.current) setCall((now) => ({ ...now, since: null, end }));
  };
  return { call, start, stop: () => control.current?.abort() };
}

async function ended(events, gather, signal) {
  try {
    for await (const { event, data } of events) {
      if (event === "result" || event === "task") return { result: data };
      if (event === "problem") return { error: { ...data, message: data.detail ?? data.title } };
      gather.add(event, data);
    }
    return { error: BROKEN_OFF };
  } catch (error) {
    if (signal.aborted) return { isStopped: true };
    return { error: error instanceof Problem ? error : BROKEN_OFF };
  }
}

const MESSAGE_LENGTH = 2_000;

function textOf(event, { text, value }) {
  if (event === "message") return text || JSON.stringify(value).slice(0, MESSAGE_LENGTH);
  if (event === "file") return `sent ${text} (${value.size.toLocaleString()} bytes)`;
  return event === "injected" ? `offers ${text}` : text;
}

/* Collects events, updates once per frame, and keeps the last lines: output may be endless. */
function gathering(update) {
  const collected = { ...NOTHING, lines: [] };
  let due = null;
  const flush = () => {
    cancelAnimationFrame(due);
    due = null;
    if (collected.lines.length > MOST_LINES) {
      collected.left += collected.lines.length - MOST_LINES;
      collected.lines = collected.lines.slice(-MOST_LINES);
    }
    update({ ...collected, lines: [...collected.lines] });
  };
  const add = (event, data) => {
    if (event === "progress") collected.progress = data;
    else if (event === "pending") collected.pending = data.text;
    else if (event === "lost")
      collected.lines.push({
        kind: "lost",
        text: `${data.count.toLocaleString()} events came too fast and were dropped`,
      });
    else collected.lines.push({ kind: event, level: data.level, text: textOf(event, data) });
    if (event !== "pending") collected.pending = null;
    if (collected.lines.length > 2 * MOST_LINES) {
      collected.left += collected.lines.length - MOST_LINES;
      collected.lines = collected.lines.slice(-MOST_LINES);
    }
    due ??= requestAnimationFrame(flush);
  };
  return { add, flush };
}

function Elapsed({ since }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.max(0, Math.floor((now - since) / 1_000));
  return html`<span class="muted elapsed">${seconds} s</span>`;
}

function Live({ call, isRunning }) {
  const box = useRef(null);
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [call.lines]);
  // The result contains everything else too.
  const isOnlyLive = ({ kind }) => kind === "log" || kind === "lost";
  const lines = call.end?.result ? call.lines.filter(isOnlyLive) : call.lines;
  return html`
    <div class="live" hidden=${!isRunning && !lines.length}>
      <div role="status" class=${isRunning ? "live-state" : undefined}>
        ${
          isRunning &&
          call.pending &&
          html`<p class="live-pending"><${Icon} name="hand" />
          A person has to approve this
          call: <${Link} to="/approvals">open approvals</${Link}>.</p>`
        }
        ${isRunning && !call.pending && html`<${Progress} progress=${call.progress} />`}
      </div>
      ${
        lines.length > 0 &&
        html`
        <div class="live-log" ref=${box} tabindex="0" role="log" aria-label="Log">
          ${call.left > 0 && html`
            <p class="muted">${call.left.toLocaleString()} earlier lines are left out</p>`}
          ${lines.map(
            ({ kind, level, text }, at) => html`
            <p key=${call.left + at} class=${`line ${kind} ${level ?? ""}`}>
              <span class="line-kind">${level ?? kind}</span>
              <${Shown} text=${text.slice(0, 5_000)} />
            </p>`,
          )}
        </div>`
      }
    </div>`;
}

function Progress({ progress }) {
  const { done, total, text } = progress ?? {};
  const isKnown = typeof total === "number" && total > 0 && typeof done === "number";
  const share = isKnown ? Math.min(1, Math.max(0, done / total)) : undefined;
  const amount = isKnown
    ? `${Math.round(share * 100)} %`
    : typeof done === "number"
      ? done.toLocaleString()
      : "";
  return html`
    <div class="live-progress">
      <progress value=${share} max="1" aria-label="Progress"></progress>
      <span>${amount}</span>
      ${text ? html`<${Shown} text=${text.slice(0, 500)} />` : !amount && "Running"}
    </div>`;
}

function End({ end }) {
  if (!end) return null;
  if (end.isStopped)
    return html`<p class="muted stopped" role="status"><${Icon} name="square" />
      ${" "}Stopped: the call was cancelled.</p>`;
  if (end.error) return html`<${Trouble} error=${end.error} />`;
  return html`<div class="trying-result" role="region" aria-label="Result">
    <${ResultView} result=${end.result} /></div>`;
}

/* The server's problems with the arguments, by path. */
function problemsOf(end) {
  if (!end) return [];
  if (end.error)
    return (end.error.errors ?? []).filter(({ place }) => place?.startsWith("body.arguments"));
  const { status, error } = end.result?.result ?? end.result ?? {};
  if (status !== "invalid" || error?.code !== "invalid_arguments") return [];
  return error.message.split("\n").map((line) => {
    const [, place, message] = line.match(/^(.+?): (.*)$/s) ?? [null, "", line];
    return { place, message };
  });
}
