// Privileges granted by the settings and by keys.
import { html } from "../../lib.js";
import { Empty } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Loaded, Names, Table, useResponse, useList } from "./shared.js";

export const PRIVILEGES = {
  ADMIN: "Administer keys, sessions, settings, tools and their versions, and the audit log.",
  APPROVE: "Approve or reject pending calls.",
  WRITE_TOOLS: "Write tools while the server runs.",
  UNSANDBOXED_EXEC: "Call and admit tools that run outside the sandbox.",
};
const COLUMNS = [
  { title: "Who", cell: ({ who }) => html`<${Shown} text=${who} />` },
  { title: "Privileges", cell: ({ names }) => html`<${Names} names=${names} />` },
  { title: "Source", cell: ({ by }) => by },
];

export function Privileges() {
  const rules = useResponse("/v1/rules");
  const keys = useList("/v1/keys");
  const request = {
    ...rules, value: rules.value && keys.items && rows(rules.value, keys.items),
    error: rules.error ?? keys.error,
  };
  return html`
    <p class="muted">The operator has all of them on the server's machine. Other users have those
      listed here, or those their session was created with.</p>
    <${Loaded} request=${request} label="Loading privileges">${(found) => (found.length
      ? html`<${Table} label="Users with privileges" columns=${COLUMNS} rows=${found} />`
      : html`<${Empty} icon="badge-check" title="No other users have privileges">
          Grant some in <code>toolkiln.toml</code>, as
          in <code>[privileges] "ann" = ["APPROVE"]</code>, or create a key that has them.
        </${Empty}>`)}</${Loaded}>
    <h3>What the privileges allow</h3>
    <dl class="facts panel">${Object.entries(PRIVILEGES).map(([name, words]) => html`
      <dt key=${name}><code>${name}</code></dt><dd>${words}</dd>`)}</dl>`;
}

function rows({ privileges }, keys) {
  const settings = Object.entries(privileges).map(([who, names]) => ({
    id: `settings ${who}`, names, by: "the settings",
    who: who.startsWith("group:") ? `everyone in ${who.slice("group:".length)}` : who,
  }));
  const holding = keys.filter(({ holds, privileges: held }) => holds && held.length);
  return settings.concat(holding.map(({ id, user, name, privileges: names }) => ({
    id: `key ${id}`, who: user, names, by: html`the key <${Shown} text=${name} />`,
  })));
}
