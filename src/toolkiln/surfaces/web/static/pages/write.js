// Write a tool: editor with live check, preview, a test run, and saving.
import { useWho } from "../app.js";
import { Editor } from "../editor.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../lib.js";
import { useLive } from "../live.js";
import { Busy, Button, Locked, Time, Trouble, toast } from "../parts.js";
import { navigate, useQuery } from "../router.js";
import { useCheck } from "./write/check.js";
import { current, useDocument } from "./write/document.js";
import { Findings, counted } from "./write/findings.js";
import { Note, reason } from "./write/note.js";
import { Panes } from "./write/panes.js";
import { Outcome, save } from "./write/save.js";
import { STARTERS } from "./write/starters.js";

export default function Write() {
  const tool = useQuery().get("tool") ?? "";
  const who = useWho();
  if (!who.may("WRITE_TOOLS")) {
    return html`
      <div class="page-head"><h1>${entitled(tool)}</h1></div>
      <${Locked} title="Writing and checking tools requires WRITE_TOOLS"
        privilege="WRITE_TOOLS" />`;
  }
  return html`<${Workshop} tool=${tool} />`;
}

function entitled(tool) {
  return tool ? `Edit ${tool}` : "Write a tool";
}

function Workshop({ tool }) {
  const work = useDocument(tool);
  const { document, source } = work;
  const [provider, setProvider] = useState("openai");
  const check = useCheck(document ? source : "", provider, document?.helpers);
  const saving = useSaving(work, check);
  const editor = useRef(null);
  const findings = useFindings(check, saving.outcome);
  const title = entitled(tool);

  if (work.error) {
    return html`<div class="stack"><h1>${title}</h1><${Trouble} error=${work.error} /></div>`;
  }
  if (!document) return html`<h1>${title}</h1><${Busy} label="Loading source" />`;
  const isBroken = check.answer !== null && !check.answer.tools.length;
  const press = (event) => {
    if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (!saving.hindrance && !saving.isBusy) saving.start();
  };
  return html`
    <div class="write" onKeyDown=${press}>
      <${Head} ...${{ title, work, saving, prospects: check.answer?.prospects }} />
      <${Notices} ...${{ work, check, saving }} />
      <div class="write-columns">
        <section class="write-source" aria-label="Source">
          <${Editor} key=${work.opened} label="Source" value=${source} findings=${findings}
            control=${editor} onChange=${work.write} />
          <${State} ...${{ check, findings, work, saving }} />
          <${Findings} findings=${findings}
            onGo=${(one) => editor.current?.goTo(one.line, one.column)}
            onRepair=${(one) => editor.current?.insert(one.repair)} />
        </section>
        <section class="write-side panel" aria-label="Preview">
          ${check.answer && html`
            <${Panes} ...${{ source, tools: check.tools, isBroken, provider }}
              prospects=${check.answer.prospects} onProvider=${setProvider} />`}
          ${!check.answer && (check.error ? html`<${Trouble} error=${check.error} />`
            : html`<${Busy} label="Reading source" />`)}
        </section>
      </div>
    </div>`;
}

/* The server's findings, and those of saving: both for the current text only. */
function useFindings(check, outcome) {
  const [found, setFound] = useState([]);
  useEffect(() => {
    if (check.isCurrent && check.answer) setFound(check.answer.findings);
  }, [check.answer, check.isCurrent]);
  return useMemo(() => {
    const known = new Set(found.map((one) => `${one.rule} ${one.line}`));
    const more = (outcome?.findings ?? []).filter((one) => !known.has(`${one.rule} ${one.line}`));
    return [...found, ...more].sort((one, other) => one.line - other.line);
  }, [found, outcome]);
}

/* {outcome, isBusy, hindrance, name, start(), load(document), replace(document)} */
function useSaving(work, check) {
  const [outcome, setOutcome] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const { document, source, isDirty } = work;
  const names = check.answer?.tools.map(({ name }) => name) ?? [];
  const name = names.includes(document?.tool) ? document.tool : names[0];
  const isRenamed = Boolean(document?.tool) && name !== undefined && name !== document.tool;

  useEffect(() => setOutcome((now) => (now?.source === source ? now : null)), [source]);

  const start = async () => {
    setBusy(true);
    const became = await save(name, source, isRenamed ? null : document.digest);
    setBusy(false);
    setOutcome({ ...became, source });
    if (became.kind === "proposed") work.settle({ ...document, saved: source });
    if (became.kind !== "saved") return;
    const { digest, version } = became.written;
    const helpers = isRenamed ? [] : document.helpers;
    work.settle({ tool: name, saved: source, digest, version, helpers });
    if (document.tool !== name) {
      navigate(`/write?tool=${encodeURIComponent(name)}`, { replace: true });
    }
  };
  const load = useCallback((newer) => {
    setOutcome(null);
    work.load(newer);
  }, [work.load]);
  const replace = (newer) => {
    setOutcome(null);
    work.settle(newer);
  };
  const tell = () => setOutcome({ kind: "outdated", name: document.tool, source });
  useNewer(document, isDirty, isBusy, { load, tell });
  return {
    outcome, isBusy, name, isRenamed, start, load, replace, hindrance: hindrance(check, work),
  };
}

/* The reason why it cannot be saved now. */
function hindrance(check, { document, isDirty }) {
  if (!check.answer) return check.error ? "the check failed" : "the check is running";
  const { findings, prospects, tools } = check.answer;
  if (!prospects.saving.allowed) return "you may not save it";
  const hinders = ({ severity, rule }) =>
    severity === "error" || prospects.refused_rules.includes(rule);
  if (findings.some(hinders)) {
    return "correct its errors first";
  }
  if (!tools.length) return "it declares no tool";
  return document?.tool && !isDirty ? "nothing has changed" : "";
}

/* A version written elsewhere meanwhile: shown, or announced if there is unsaved work. */
function useNewer(document, isDirty, isBusy, { load, tell }) {
  useLive("catalog", async ({ changed = [] }) => {
    if (isBusy || !document?.tool || !changed.includes(document.tool)) return;
    const newer = await current(document.tool).catch(() => null); // saving reports it
    if (!newer || newer.digest === document.digest) return;
    if (isDirty) return tell();
    load(newer);
    toast(`Version ${newer.version} was saved in the meantime and is shown`);
  });
}

function Head({ title, work, saving, prospects }) {
  const start = (event) => {
    const { source } = STARTERS[Number(event.target.value)];
    event.target.value = "";
    work.load({ ...work.document, saved: source });
    if (work.isDirty) toast("Replaced. Press Ctrl+Z in the editor to undo.");
  };
  const doing = prospects?.is_proposal ? "Propose" : "Save";
  return html`
    <div class="page-head">
      <h1>${title}</h1>
      ${work.document.version && html`<span class="muted">version ${work.document.version}</span>`}
      <span class="grow"></span>
      ${!work.document.tool && html`
        <select aria-label="Start from an example" onChange=${start}>
          <option value="">Start from…</option>
          ${STARTERS.map((one, at) => html`<option value=${at}>${one.title}</option>`)}</select>`}
      <${Button} kind="primary" icon="save" busy=${saving.isBusy}
        disabled=${Boolean(saving.hindrance)}
        title=${saving.hindrance ? `Cannot save: ${saving.hindrance}` : "Ctrl+S"}
        onClick=${saving.start}>
        ${doing}${saving.name ? ` ${saving.name}` : ""}</${Button}>
    </div>`;
}

function Notices({ work, check, saving }) {
  const { document, restored } = work;
  const prospects = check.answer?.prospects;
  const taken = !document.digest
    && check.answer?.tools.find(({ name, is_taken }) => name === saving.name && is_taken);
  return html`
    ${prospects && !prospects.saving.allowed && html`
      <${Note} kind="warn" icon="lock" hint=${prospects.saving.hint}>
        You can write and check here, but not save: ${reason(prospects.saving)}.</${Note}>`}
    ${prospects?.saving.allowed && prospects.is_proposal && html`
      <${Note} kind="info" icon="hourglass">Saving creates a proposal: a person with ADMIN has to
        admit it before it can be called.</${Note}>`}
    ${document.helpers.length > 0 && html`<${Note} kind="info" icon="info">This tool has helper
      modules (${document.helpers.join(", ")}) that are neither shown here nor used by Check and
      Run; they do not change.</${Note}>`}
    ${restored && html`
      <${Note} kind="info" icon="history">Restored work from <${Time} at=${restored} />.${" "}
        <button type="button" class="link" onClick=${work.discard}>Discard</button></${Note}>`}
    ${taken && !saving.outcome && html`<${Note} kind="warn" icon="triangle-alert">A tool
      named <strong>${taken.name}</strong> already exists: choose another name.</${Note}>`}
    ${saving.isRenamed && html`
      <${Note} kind="info" icon="info">The source no longer declares ${document.tool}: saving
        adds ${saving.name}, and ${document.tool} does not change.</${Note}>`}
    ${saving.outcome && html`<${Outcome} outcome=${saving.outcome} source=${work.source}
      onLoad=${saving.load} onReplace=${saving.replace} />`}`;
}

function State({ check, findings, work, saving }) {
  let summary = counted(findings);
  if (!work.source) summary = "No source yet";
  else if (check.error) summary = `Not checked: ${check.error.message}`;
  return html`
    <p class="write-state"><span role="status">${summary}</span>
      <span class="muted">${check.isCurrent || check.error ? "" : "checking…"}</span>
      <span class="grow"></span>
      <span class="muted">
        ${work.isDirty && ["not saved", saving.hindrance].filter(Boolean).join(": ")}</span></p>`;
}
