// The arguments of a call, for the person who decides on it; long values are folded.
import { html, useState } from "../../lib.js";
import { Badge, Button } from "../../parts.js";
import { Shown } from "../../result/text.js";

const MOST_LINES = 12;
const MOST_CHARACTERS = 1200;
const SHORT = 160;

/* A text line by line; a long one is cut, with a note of what is missing. */
function Folded({ text, label }) {
  const [isWhole, setWhole] = useState(false);
  const cut = isWhole ? text : beginning(text);
  const rest = text.length - cut.length;
  return html`
    <div class="folded">
      <pre role="region" aria-label=${label} tabindex="0"><${Shown} text=${cut} /></pre>
      ${(rest > 0 || isWhole) && html`
        <${Button} kind="quiet" icon=${rest ? "chevrons-down" : "chevrons-up"}
          aria-expanded=${isWhole} onClick=${() => setWhole(!isWhole)}>
          ${rest ? `Show ${rest.toLocaleString()} more characters` : "Show less"}</${Button}>`}
    </div>`;
}

function beginning(text) {
  const lines = text.split("\n", MOST_LINES).join("\n");
  return lines.slice(0, MOST_CHARACTERS);
}

/* The arguments of a call, one by one. */
export function Arguments({ value, before }) {
  const names = Object.keys(value);
  if (!names.length) return html`<p class="muted">No arguments.</p>`;
  const isEdited = (name) => before && JSON.stringify(before[name]) !== JSON.stringify(value[name]);
  return html`
    <dl class="arguments">${names.map((name) => html`
      <dt><${Shown} text=${name} />
        ${isEdited(name) && html` <${Badge} kind="info">edited</${Badge}>`}</dt>
      <dd><${Given} value=${value[name]} name=${name} /></dd>`)}
    </dl>`;
}

function Given({ value, name }) {
  const text = JSON.stringify(value, null, 2);
  if (text.length <= SHORT && !text.includes("\n") && !text.includes("\\")) {
    return html`<code class=${typeof value}><${Shown} text=${text} /></code>`;
  }
  // A text of several lines is shown as is; quotes would only hide where it ends.
  return html`<${Folded} text=${typeof value === "string" ? value : text} label=${name} />`;
}
