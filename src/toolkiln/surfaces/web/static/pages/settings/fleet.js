// The fleet that the server belongs to: its pools and workers.
import { html } from "../../lib.js";
import { Badge, Button, Empty, Icon, Trouble } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Loaded, size, span, Table, useResponse } from "./shared.js";

const POOLS = [
  { title: "Pool", cell: ({ name }) => html`<strong><${Shown} text=${name} /></strong>` },
  { title: "Running", cell: ({ running }) => running.toLocaleString() },
  { title: "Queued", cell: ({ waiting, oldest }) => html`${waiting.toLocaleString()}
    ${waiting > 0 && html` <span class="hint">the first for ${span(oldest)}</span>`}` },
  { title: "Dead letters", cell: ({ dead }) => (dead
    ? html`<${Badge} kind="bad">${dead.toLocaleString()}</${Badge}>` : "0") },
];
const WORKERS = [
  { title: "Worker", cell: ({ name }) => html`<strong><${Shown} text=${name} /></strong>` },
  { title: "Pool", cell: ({ pool }) => html`<${Shown} text=${pool} />` },
  { title: "State", cell: ({ state }) => html`
    <${Badge} kind=${state === "running" ? "ok" : "warn"}>${state}</${Badge}>` },
  { title: "Calls", cell: ({ running, slots }) => `${running} of ${slots}` },
  { title: "Up for", cell: ({ seconds }) => span(seconds) },
  { title: "Version", cell: ({ version }) => html`<${Shown} text=${version} />` },
  { title: "Machine", cell: ({ host, pid }) => html`
    <${Shown} text=${host} /> <span class="hint">pid ${pid}</span>` },
];

export function Fleet() {
  const request = useResponse("/v1/fleet");
  return html`
    <div class="row">
      <p class="muted grow">The current state of the machines that share one Redis.</p>
      <${Button} icon="rotate-cw" busy=${request.busy} onClick=${request.again}>Reload</${Button}>
    </div>
    ${request.value && request.error && html`<${Trouble} error=${request.error} />`}
    <${Loaded} request=${request} label="Loading fleet status">${({ state }) => (state
      ? html`<${State} state=${state} />`
      : html`<${Empty} icon="network" title="No fleet">
          Neither the setting <code>redis</code> nor <code>fleet</code> is set.
        </${Empty}>`)}</${Loaded}>`;
}

function State({ state: { server, version, memory, tools, warnings, pools, workers } }) {
  return html`
    <p class="panel">
      ${server}: Redis ${version}, ${size(memory)}, ${tools.toLocaleString()} tools</p>
    ${warnings.map((words) => html`
      <p key=${words} class="never"><${Icon} name="triangle-alert" /> ${words}</p>`)}
    ${pools.length > 0 && html`
      <${Table} label="Pools" columns=${POOLS} rows=${pools} id=${(one) => one.name} />`}
    ${workers.length > 0
      ? html`<${Table} label="Workers" columns=${WORKERS} rows=${workers}
          id=${(one) => one.name} />`
      : html`<${Empty} icon="server" title="No workers">
          Start one with <code>toolkiln worker</code>.</${Empty}>`}`;
}
