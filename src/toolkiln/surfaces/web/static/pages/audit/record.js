// One audit record with all its fields.
import { parsed } from "../../exact_number.js";
import { html } from "../../lib.js";
import { Badge, Button, Copy, Duration, Time } from "../../parts.js";
import { LongText, Shown } from "../../result/text.js";
import { Link } from "../../router.js";

/* The outcomes of acts and their colors. */
export const OUTCOMES = {
  ok: "ok", started: "info", denied: "warn", failed: "bad", exception: "bad", invalid: "warn",
  timeout: "bad", killed: "bad", cancelled: "quiet", unavailable: "bad",
};

export function RecordDetail({ record, onFilter }) {
  const filter = (name) => html`
    <${Button} kind="quiet" icon="funnel" aria-label=${`Only this ${name}`}
      title=${`Only this ${name}`} onClick=${() => onFilter({ [name]: record[name] })} />`;
  const facts = [
    ["Time", html`<${Time} at=${record.at} />`],
    ["Act", html`<code>${record.act}</code>${filter("act")}`],
    ["Outcome", html`<${Outcome} outcome=${record.outcome} />`],
    ["User", record.user && html`<${Shown} text=${record.user} />${filter("user")}`],
    ["Agent", record.agent && html`<${Shown} text=${record.agent} />`],
    ["Session", record.session && html`<code>${record.session}</code>${filter("session")}`],
    ["Surface", record.surface],
    ["Tool", record.tool && html`<${Shown} text=${record.tool} />${filter("tool")}`],
    ["Version", record.digest && html`<code>${record.digest}</code>`],
    ["Call", record.call_id && html`<${Run} id=${record.call_id} />`],
    ["Parent call", record.parent && html`<${Run} id=${record.parent} />`],
    ["Duration", record.duration !== null && html`<${Duration} seconds=${record.duration} />`],
    ["Detail", record.detail && html`<${Shown} text=${record.detail} />`],
    ["Hash", html`<code>${record.hash}</code>
      <${Copy} text=${record.hash} label="Copy hash" />`],
  ];
  return html`
    <dl class="record-facts">${facts.filter(([, value]) => value).map(([name, value]) => html`
      <dt>${name}</dt><dd>${value}</dd>`)}</dl>
    ${record.arguments && html`<h3>Arguments</h3>
      <${LongText} text=${pretty(record.arguments)} label="Arguments" />`}`;
}

export function Outcome({ outcome }) {
  return html`<${Badge} kind=${OUTCOMES[outcome] ?? "quiet"}>${outcome}</${Badge}>`;
}

function Run({ id }) {
  return html`<${Link} to=${`/runs/${encodeURIComponent(id)}`}><code>${id}</code></${Link}>`;
}

/* Arguments as lines; if they are cut, they are not JSON. */
function pretty(text) {
  try {
    return JSON.stringify(parsed(text), null, 2);
  } catch {
    return text;
  }
}
