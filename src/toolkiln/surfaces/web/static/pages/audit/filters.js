// The filters of the audit log.
import { html } from "../../lib.js";
import { Button, Field } from "../../parts.js";
import { OUTCOMES } from "./record.js";

export const FILTERS = ["user", "tool", "act", "outcome", "session", "since", "until"];
const ACTS = [
  "call", "admit", "rollback", "propose", "reject", "author", "grant", "switch", "remove",
  "run_source", "approve", "approval.forget", "key.create", "key.revoke", "session.create",
  "session.renew", "session.end", "session.open", "login", "settings", "secret.set",
  "secret.remove", "config", "audit.prune", "environment.prune",
];

/* `onChange` receives the changed filters by name; an empty one matches any record. */
export function Filters({ wanted, onChange }) {
  const text = (name, label, given = {}) => html`<${Field} label=${label}>${(attributes) => html`
    <input ...${attributes} ...${given} value=${wanted[name] ?? ""} spellcheck=${false}
      onChange=${({ target }) => onChange({ [name]: target.value.trim() })} />`}</${Field}>`;
  const moment = (name, label) => html`<${Field} label=${label}>${(attributes) => html`
    <input ...${attributes} type="datetime-local" value=${local(wanted[name])}
      onChange=${({ target }) => onChange({ [name]: seconds(target.value) })} />`}</${Field}>`;
  return html`
    <form class="filters" role="search" aria-label="Filter records"
      onSubmit=${(event) => event.preventDefault()}>
      ${text("user", "User")}
      ${text("tool", "Tool", { placeholder: "name or pattern*" })}
      ${text("act", "Act", { list: "acts" })}
      <datalist id="acts">${ACTS.map((act) => html`<option value=${act} />`)}</datalist>
      <${Field} label="Outcome">${(attributes) => html`
        <select ...${attributes} value=${wanted.outcome ?? ""}
          onChange=${({ target }) => onChange({ outcome: target.value })}>
          <option value="">any</option>
          ${Object.keys(OUTCOMES).map((one) => html`<option value=${one}>${one}</option>`)}
        </select>`}</${Field}>
      ${moment("since", "Since")}
      ${moment("until", "Until")}
      ${wanted.session && html`<${Button} icon="x" onClick=${() => onChange({ session: "" })}>
        Session <code>${wanted.session.slice(0, 8)}</code></${Button}>`}
    </form>`;
}

/* Unix seconds to the control's local time, and back. */
function local(at) {
  if (at === undefined) return "";
  const date = new Date(Number(at) * 1000);
  const there = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return Number.isNaN(there.getTime()) ? "" : there.toISOString().slice(0, 16);
}

function seconds(text) {
  const at = new Date(text).getTime() / 1000;
  return at >= 0 ? String(at) : "";
}
