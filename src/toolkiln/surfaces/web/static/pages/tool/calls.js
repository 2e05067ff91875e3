// The last calls of one tool, as they come.
import { api } from "../../api.js";
import { html } from "../../lib.js";
import { useLive } from "../../live.js";
import { Badge, Busy, Duration, Empty, Time, Trouble, useAsked } from "../../parts.js";
import { Link } from "../../router.js";

const KINDS = { ok: "ok", running: "info", pending: "info", failed: "bad", timeout: "bad", killed: "bad" };

export function Calls({ tool }) {
  const runs = useAsked((signal) => api.get("/v1/runs", { tool, limit: 50 }, { signal }), [tool]);
  useLive("run", (run) => run.tool === tool && runs.again());
  useLive("again", runs.again);
  if (runs.error) return html`<${Trouble} error=${runs.error} onRetry=${runs.again} />`;
  if (!runs.value) return html`<${Busy} />`;
  if (!runs.value.items.length) {
    return html`<${Empty} icon="activity" title="No calls yet">
      What you, or an agent, call of it shows up here.</${Empty}>`;
  }
  return html`
    <div class="panel scrolled calls" tabindex="0" role="region" aria-label="Calls"><table>
      <thead><tr><th scope="col">Status</th><th scope="col">When</th><th scope="col">Took</th>
        <th scope="col">Caller</th><th scope="col">From</th></tr></thead>
      <tbody>${runs.value.items.map((run) => html`
        <tr key=${run.id}>
          <td><${Link} to=${`/runs/${encodeURIComponent(run.id)}`}>
            <${Badge} kind=${KINDS[run.status] ?? "warn"}>${run.status}</${Badge}></${Link}></td>
          <td><${Time} at=${run.started} /></td>
          <td><${Duration} seconds=${run.duration} /></td>
          <td>${run.caller ?? "–"}</td>
          <td>${run.surface}</td>
        </tr>`)}</tbody>
    </table></div>`;
}
