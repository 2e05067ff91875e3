// The current settings and the source of each.
import { html, useState } from "../../lib.js";
import { Badge, Empty, Field } from "../../parts.js";
import { Tree } from "../../result/tree.js";
import { Shown } from "../../result/text.js";
import { Loaded, Table, useResponse } from "./shared.js";

const COLUMNS = [
  { title: "Setting", cell: ({ name, live }) => html`<code>${name}</code>
    ${live && html` <${Badge}
      title="A change in the file takes effect without a restart">live</${Badge}>`}` },
  { title: "Value", cell: (one) => html`<${Value} one=${one} />` },
  { title: "From", cell: ({ origin }) => html`<${Origin} origin=${origin} />` },
];

export function Values() {
  const request = useResponse("/v1/settings");
  const [text, setText] = useState("");
  const [isAll, setAll] = useState(false);
  return html`
    <${Loaded} request=${request} label="Loading settings">${({ items, file }) => {
      const shown = items.filter(({ name, origin }) => name.includes(text.trim().toLowerCase())
        && (isAll || text || origin !== "default"));
      return html`
        <p class="muted">Read from <code><${Shown}
          text=${file ?? "no file"} /></code> and <code>TOOLKILN_*</code> variables, which take
          precedence. Values from a program or an option override both. Passwords are not shown.</p>
        <div class="row filter">
          <${Field} label="Find setting">${(attributes) => html`
            <input ...${attributes} type="search" value=${text}
              onInput=${(event) => setText(event.target.value)} />`}</${Field}>
          <label class="choice"><input type="checkbox" checked=${isAll}
            onChange=${(event) => setAll(event.target.checked)} /><span>Show defaults</span></label>
          <span class="muted" role="status">${shown.length} of ${items.length}</span>
        </div>
        ${shown.length
          ? html`<${Table} label="Settings in force" columns=${COLUMNS} rows=${shown}
              id=${(one) => one.name} />`
          : html`<${Empty} icon="sliders-horizontal"
              title=${text ? "No matching setting" : "No settings"}>
              ${text
                ? "Try another name."
                : "All settings have their defaults. Show the defaults to see what you can set."}
            </${Empty}>`}`;
    }}</${Loaded}>`;
}

function Value({ one: { value, hidden } }) {
  if (hidden) return html`<${Badge} icon="lock">set, not shown</${Badge}>`;
  if (value === "" || value === null) return html`<span class="muted">none</span>`;
  if (typeof value !== "object") return html`<code><${Shown} text=${value} /></code>`;
  if (!Object.keys(value).length) return html`<span class="muted">none</span>`;
  return html`<${Tree} value=${value} isOpen=${false} />`;
}

function Origin({ origin }) {
  if (origin === "default") return html`<span class="muted">default</span>`;
  if (origin === "program") return "an option, or the program";
  if (!origin.includes("/")) return html`<code>${origin}</code>`;
  return html`<span title=${origin}>${origin.split("/").at(-1)}</span>`;
}
