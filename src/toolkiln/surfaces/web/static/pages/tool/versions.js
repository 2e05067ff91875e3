// Earlier versions of a tool, their changes, and rollback.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { Diff } from "../../diff.js";
import { html, useEffect, useState } from "../../lib.js";
import {
  Badge, Busy, Button, Dialog, Empty, Time, Trouble, toast, useRequest,
} from "../../parts.js";

const PAUSE = 500;
const MOST_TURNS = 20;
const ACTIONS = { admit: "admitted by", rollback: "rolled back by", dev: "added by toolkiln" };

export function Versions({ tool, path, onChange }) {
  const [wanted, want] = useState(null);
  const list = useVersions(path, tool.digest);
  if (list.error) return html`<${Trouble} error=${list.error} onRetry=${list.again} />`;
  if (!list.value) return html`<${Busy} />`;
  const versions = list.value.items;
  if (!versions.length) {
    return html`<${Empty} icon="history" title="No versions">
      What is admitted from now on is kept here.</${Empty}>`;
  }
  return html`
    <ol class="versions">${versions.map((each, place) => html`
      <${Version} key=${each.version} version=${each} since=${versions[place + 1]?.version}
        path=${path} onRollback=${() => want(each)} />`)}</ol>
    ${wanted && html`<${Rollback} path=${path} version=${wanted} tool=${tool}
      onClose=${() => want(null)} onDone=${onChange} />`}`;
}

/* An edited file is served at once, and appears in the history a moment later. */
function useVersions(path, digest) {
  const list = useRequest(
    (signal) => api.get(`${path}/versions`, { limit: 200 }, { signal }), [path, digest],
  );
  const [turns, setTurns] = useState(0);
  const isBehind = list.value && !list.busy
    && !list.value.items.some((each) => each.digest === digest);
  useEffect(() => setTurns(0), [digest]);
  useEffect(() => {
    if (!isBehind || turns >= MOST_TURNS) return undefined;
    const timer = setTimeout(() => {
      setTurns(turns + 1);
      list.again();
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [isBehind, turns]);
  return list;
}

function Version({ version: { version, served, action, at, by, note }, since, path, onRollback }) {
  const who = useWho();
  const [isOpen, open] = useState(false);
  const more = since === undefined ? "Source" : "Changes";
  return html`
    <li class=${served ? "version served" : "version"}>
      <div class="row">
        <h2>Version ${version}</h2>
        ${served && html`<${Badge} kind="ok" icon="check">served</${Badge}>`}
        <p class="muted grow">
          <${Time} at=${Date.parse(at) / 1000} /> · ${ACTIONS[action] ?? action} ${by}</p>
        ${who.may("WRITE_TOOLS") && html`
          <${Button} kind="quiet" icon="diff" aria-expanded=${isOpen}
            aria-label=${`${more} of version ${version}`}
            onClick=${() => open(!isOpen)}>${more}</${Button}>`}
        ${who.may("ADMIN") && !served && html`
          <${Button} icon="undo-2" aria-label=${`Roll back to version ${version}`}
            onClick=${onRollback}>Roll back</${Button}>`}
      </div>
      ${note && html`<p class="muted">${note}</p>`}
      ${isOpen && html`<${Changes} path=${path} version=${version} since=${since} />`}
    </li>`;
}

/* The diff of a version against the previous one; the first one in full. */
function Changes({ path, version, since }) {
  const found = useRequest(
    (signal) => api.get(`${path}/versions/${version}`, { since }, { signal }), [path, version],
  );
  if (found.error) return html`<${Trouble} error=${found.error} onRetry=${found.again} />`;
  if (!found.value) return html`<${Busy} />`;
  const { diff, sources } = found.value;
  if (typeof diff === "string") {
    return html`<${Diff} unified=${diff} label=${`Changes of version ${version}`} />`;
  }
  return Object.entries(sources).map(([name, source]) => html`
    <figure class="source"><figcaption class="muted"><code>${name}</code></figcaption>
      <pre tabindex="0"><code>${source}</code></pre></figure>`);
}

function Rollback({ path, version, tool, onClose, onDone }) {
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const act = async () => {
    setBusy(true);
    try {
      await api.post(`${path}/rollback`, { version: version.version });
      toast(`Version ${version.version} is served again`);
      onDone();
      onClose();
    } catch (error) {
      setTrouble(error);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${`Serve version ${version.version} again?`} onClose=${onClose}>
      <div class="stack">
        <p>Calls from now on run version ${version.version} of ${tool.title}. Those under way go on
          as they began, and what is served now stays in the history.</p>
        ${version.tools.length > 1 && html`<p>The file has these tools, which all go back:
          ${" "}${version.tools.join(", ")}.</p>`}
        ${trouble && html`<${Trouble} error=${trouble} />`}
        <div class="row">
          <${Button} kind="primary" icon="undo-2" busy=${busy}
            onClick=${act}>Roll back</${Button}>
          <${Button} onClick=${onClose}>Cancel</${Button}></div>
      </div>
    </${Dialog}>`;
}
