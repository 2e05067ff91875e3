// Text and values of strangers, for somebody who decides by them: what does not show is spelt
// out, what is long is folded and says so.
import { Button } from "./parts.js";
import { html, useState } from "./lib.js";

const UNSEEN = /[^\P{C}\t\n]|[\p{Zl}\p{Zp}\u00a0\u115f\u1160\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;
const MOST_LINES = 12;
const MOST_CHARACTERS = 1200;
const SHORT = 160;

/* A text as it is: characters that do not show, or turn others around, as ⟨U+202E⟩. */
export function Seen({ text }) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(UNSEEN)) {
    parts.push(text.slice(end, found.index), html`<mark class="unseen">${spelt(found[0])}</mark>`);
    end = found.index + found[0].length;
  }
  return html`<bdi>${[...parts, text.slice(end)]}</bdi>`;
}

function spelt(character) {
  return `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/* A text in its lines; a long one is cut, with what is missing. */
export function Folded({ text, label }) {
  const [isWhole, setWhole] = useState(false);
  const cut = isWhole ? text : beginning(text);
  const rest = text.length - cut.length;
  return html`
    <div class="folded">
      <pre aria-label=${label} tabindex="0"><${Seen} text=${cut} /></pre>
      ${(rest > 0 || isWhole) && html`
        <${Button} kind="quiet" icon=${rest ? "chevrons-down" : "chevrons-up"} aria-expanded=${isWhole}
          onClick=${() => setWhole(!isWhole)}>
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
  const isOther = (name) => before && JSON.stringify(before[name]) !== JSON.stringify(value[name]);
  return html`
    <dl class="arguments">${names.map((name) => html`
      <dt><${Seen} text=${name} />${isOther(name) && html` <span class="badge info">edited</span>`}</dt>
      <dd><${Given} value=${value[name]} name=${name} /></dd>`)}
    </dl>`;
}

function Given({ value, name }) {
  const text = JSON.stringify(value, null, 2);
  if (text.length <= SHORT && !text.includes("\n") && !text.includes("\\")) {
    return html`<code class=${typeof value}><${Seen} text=${text} /></code>`;
  }
  // A text of several lines is read as such; its quotes would only hide where it ends.
  return html`<${Folded} text=${typeof value === "string" ? value : text} label=${name} />`;
}
