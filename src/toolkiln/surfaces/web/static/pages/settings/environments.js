// Installed packages of tools, and a form to remove unused ones.
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Button, Empty, Field, Time, toast } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Loaded, Confirm, size, Table, useResponse } from "./shared.js";

const COLUMNS = [
  { title: "Packages", cell: ({ packages }) => html`<${Packages} packages=${packages} />` },
  { title: "For", cell: ({ requirements }) => (requirements.length
    ? requirements.map((some) => html`<div class="hint"><${Shown} text=${some.join(", ")} /></div>`)
    : html`<span class="muted">no current tool</span>`) },
  { title: "Size", cell: (one) => size(one.size) },
  { title: "Last used", cell: ({ last_used }) => html`<${Time} at=${last_used} />` },
];

export function Environments() {
  const request = useResponse("/v1/environments");
  const [days, setDays] = useState(null);
  const prune = async () => {
    const { items } = await api.post("/v1/environments/prune", { days });
    const bytes = items.reduce((sum, one) => sum + one.size, 0);
    toast(items.length
      ? `Removed ${items.length}, ${size(bytes)}` : "No environment was unused for that long");
    setDays(null);
    request.again();
  };
  const ask = (event) => {
    event.preventDefault();
    setDays(Number(new FormData(event.target).get("days")));
  };
  return html`
    <p class="muted">Packages that tools require, locked and built once for each set of
      requirements. A removed environment is built again when a tool needs it.</p>
    <${Loaded} request=${request} label="Loading environments">
      ${({ items }) => (items.length ? html`
        <${Table} label="Environments" columns=${COLUMNS} rows=${items} id=${(one) => one.key} />
        <form class="panel row prune" onSubmit=${ask}>
          <${Field} label="Days without use">${(attributes) => html`
            <input ...${attributes} name="days" type="number" min="0" max="36500" value="30"
              required />`}</${Field}>
          <${Button} kind="danger" type="submit" icon="trash-2">Remove environments</${Button}>
        </form>` : html`
        <${Empty} icon="package" title="No environments">Toolkiln builds an environment with the
          first call of a tool that requires packages, or
          with <code>toolkiln env build</code>.</${Empty}>`)}</${Loaded}>
    ${days !== null && html`
      <${Confirm} title="Remove environments?" action="Remove environments" onConfirm=${prune}
        onClose=${() => setDays(null)}>
        <p>Environments unused for ${days} ${days === 1 ? "day" : "days"} will be removed from the
          disk.</p>
      </${Confirm}>`}`;
}

function Packages({ packages }) {
  return Object.entries(packages).map(([name, version]) => html`
    <div key=${name}><${Shown} text=${name} /> <span class="muted">${version}</span></div>`);
}
