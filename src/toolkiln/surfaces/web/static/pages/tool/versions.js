// What was served under a name before, what changed, and the way back.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { Diff } from "../../diff.js";
import { html, useState } from "../../lib.js";
import { Badge, Busy, Button, Dialog, Empty, Time, Trouble, toast, useAsked } from "../../parts.js";

export function Versions({ tool, path, onChange }) {
  const who = useWho();
  const [chosen, choose] = useState(null);
  const [wanted, want] = useState(null);
  const list = useAsked((signal) => api.get(`${path}/versions`, { limit: 200 }, { signal }), [tool.digest]);
  if (list.error) return html`<${Trouble} error=${list.error} onRetry=${list.again} />`;
  if (!list.value) return html`<${Busy} />`;
  const versions = list.value.items;
  if (!versions.length) return html`<${Empty} icon="history" title="No version is kept" />`;
  return html`
    <div class="stack">
      <div class="scrolled" tabindex="0" role="region" aria-label="Versions"><table>
        <thead><tr><th scope="col">Version</th><th scope="col">When</th><th scope="col">By</th>
          <th scope="col">How</th><th scope="col"><span class="hidden-text">What to do</span></th></tr></thead>
        <tbody>${versions.map((each, place) => html`
          <tr>
            <td>${each.version} ${each.served && html`<${Badge} kind="ok">served</${Badge}>`}</td>
            <td><${Time} at=${Date.parse(each.at) / 1000} /></td>
            <td>${each.by}</td>
            <td>${each.action}${each.note && html`<br /><span class="muted">${each.note}</span>`}</td>
            <td class="row">
              ${who.may("WRITE_TOOLS") && html`
                <${Button} kind="quiet" icon="diff" aria-expanded=${chosen === each.version}
                  aria-label=${`What changed in version ${each.version}`}
                  onClick=${() => choose(chosen === each.version ? null : each.version)}>Changes</${Button}>`}
              ${who.may("ADMIN") && !each.served && html`
                <${Button} kind="quiet" icon="undo-2" aria-label=${`Serve version ${each.version} again`}
                  onClick=${() => want(each)}>Roll back</${Button}>`}
            </td>
          </tr>
          ${chosen === each.version && html`
            <tr><td colspan="5"><${Changes} path=${path} version=${each.version}
              since=${versions[place + 1]?.version} /></td></tr>`}`)}</tbody>
      </table></div>
      ${wanted && html`<${Rollback} path=${path} version=${wanted} tool=${tool}
        onClose=${() => want(null)} onDone=${onChange} />`}
    </div>`;
}

/* A version against the one before it; the first one against nothing. */
function Changes({ path, version, since }) {
  const found = useAsked((signal) => Promise.all(
    [version, since].filter((each) => each !== undefined)
      .map((each) => api.get(`${path}/versions/${each}`, null, { signal })),
  ), [path, version]);
  if (found.error) return html`<${Trouble} error=${found.error} onRetry=${found.again} />`;
  if (!found.value) return html`<${Busy} />`;
  const [after, before] = found.value.map(({ sources }) => Object.values(sources)[0]);
  return html`<${Diff} before=${before ?? ""} after=${after} />`;
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
        <p>Calls from now on run version ${version.version} of ${tool.title}. Those under way go on as
          they began, and version ${tool.version} stays in the history.</p>
        ${version.tools.length > 1 && html`<p>The file has these tools, which all go back:
          ${" "}${version.tools.join(", ")}.</p>`}
        ${trouble && html`<${Trouble} error=${trouble} />`}
        <div class="row"><${Button} kind="primary" icon="undo-2" busy=${busy} onClick=${act}>Roll back</${Button}>
          <${Button} onClick=${onClose}>Leave it</${Button}></div>
      </div>
    </${Dialog}>`;
}
