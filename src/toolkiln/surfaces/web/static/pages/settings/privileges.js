// Who may do more than call tools: by the settings, and by keys.
import { html } from "../../lib.js";
import { Empty } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Answered, Names, Table, useAnswer, useList } from "./shared.js";

export const PRIVILEGES = {
  ADMIN: "Administer: keys, sessions, settings, switches and versions of tools, the audit.",
  APPROVE: "Decide about calls that wait for a person.",
  WRITE_TOOLS: "Write tools while the server runs.",
  UNSANDBOXED_EXEC: "Call and admit tools that run outside the sandbox.",
};
const COLUMNS = [
  { title: "Who", cell: ({ who }) => html`<${Shown} text=${who} />` },
  { title: "Privileges", cell: ({ names }) => html`<${Names} names=${names} />` },
  { title: "By", cell: ({ by }) => by },
];

export function Privileges() {
  const rules = useAnswer("/v1/rules");
  const keys = useList("/v1/keys");
  const asked = {
    ...rules, value: rules.value && keys.items && rows(rules.value, keys.items),
    error: rules.error ?? keys.error,
  };
  return html`
    <p class="muted">Whoever runs the server has all of them on its machine. Others have what
      stands here, or what their session was made with.</p>
    <${Answered} asked=${asked} label="Asking who has privileges">${(found) => (found.length
      ? html`<${Table} label="Who has privileges" columns=${COLUMNS} rows=${found} />`
      : html`<${Empty} icon="badge-check" title="Nobody else has privileges">
          Give some in <code>toolkiln.toml</code>, as
          in <code>[privileges] "ann" = ["APPROVE"]</code>, or make a key that has them.
        </${Empty}>`)}</${Answered}>
    <h3>What they let people do</h3>
    <dl class="facts panel">${Object.entries(PRIVILEGES).map(([name, words]) => html`
      <dt key=${name}><code>${name}</code></dt><dd>${words}</dd>`)}</dl>`;
}

function rows({ privileges }, keys) {
  const settings = Object.entries(privileges).map(([who, names]) => ({
    id: `settings ${who}`, names, by: "the settings",
    who: who.startsWith("group:") ? `everybody in ${who.slice("group:".length)}` : who,
  }));
  const holding = keys.filter(({ holds, privileges: held }) => holds && held.length);
  return settings.concat(holding.map(({ id, user, name, privileges: names }) => ({
    id: `key ${id}`, who: user, names, by: html`the key <${Shown} text=${name} />`,
  })));
}
