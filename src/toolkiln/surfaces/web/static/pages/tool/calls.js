// The latest calls of one tool, live.
import { api } from "../../api.js";
import { html } from "../../lib.js";
import { useLive } from "../../live.js";
import { Busy, Empty, Time, Trouble, useRequest } from "../../parts.js";
import { Link } from "../../router.js";
import { StatusBadge, Took, keyOf, placeOf } from "../runs/run.js";

const MOST = 50;

export function Calls({ tool }) {
  const query = { tool, limit: MOST };
  const runs = useRequest((signal) => api.get("/v1/runs", query, { signal }), [tool]);
  useLive("run", (run) => run.tool === tool && runs.again());
  useLive("again", runs.again);
  if (runs.error) return html`<${Trouble} error=${runs.error} onRetry=${runs.again} />`;
  if (!runs.value) return html`<${Busy} />`;
  if (!runs.value.items.length) {
    return html`<${Empty} icon="activity" title="No calls yet">
      What you, or an agent, call of it shows up here.</${Empty}>`;
  }
  return html`
    <ol class="calls narrow">${runs.value.items.map((run) => html`
      <li key=${keyOf(run)}><${Link} to=${placeOf(run.id)}>
        <${StatusBadge} run=${run} /><span class="grow"><${Time} at=${run.started} /></span>
        <span class="muted">${run.caller ?? "unknown caller"} by ${run.surface}</span>
        <span class="took"><${Took} run=${run} /></span>
      </${Link}></li>`)}</ol>
    ${runs.value.next_cursor && html`<p class="muted more">
      These are the last ${MOST}; see <${Link} to="/runs">all runs</${Link}> for the others.</p>`}`;
}
