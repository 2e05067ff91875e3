// A JSON value as a collapsible tree. Only open nodes exist, and long lists and objects are
// split into ranges, so that a value of any size renders at once.
import { Exact, isObject } from "../form/json.js";
import { html, useMemo, useState } from "../lib.js";
import { Button } from "../parts.js";
import { Shown } from "./text.js";

const MOST_ENTRIES = 100;
const MOST_CHARACTERS = 1_000;
// Maximum number of entries that are open initially.
const OPEN_AT_FIRST = 200;

export function Tree({ value, name, isOpen = true }) {
  const opened = useMemo(() => (isOpen ? openAtFirst(value) : new Set()), [value, isOpen]);
  return html`<div class="tree"><${Node} value=${value} name=${name} opened=${opened} /></div>`;
}

/* The lists and objects that are open initially: breadth first, up to the maximum. */
function openAtFirst(value) {
  const opened = new Set();
  const waiting = [value];
  let room = OPEN_AT_FIRST;
  for (let at = 0; at < waiting.length && room > 0; at += 1) {
    const one = waiting[at];
    if (!isBranch(one)) continue;
    const inner = Array.isArray(one) ? one : Object.values(one);
    if (at > 0 && inner.length > room) continue;
    opened.add(one);
    room -= inner.length;
    waiting.push(...inner.slice(0, MOST_ENTRIES));
  }
  return opened;
}

function isBranch(value) {
  return Array.isArray(value) || isObject(value);
}

function Node({ value, name, opened }) {
  const key = name !== undefined && html`<span class="key"><${Shown} text=${name} /></span>: `;
  if (!isBranch(value)) return html`<div class="json">${key}<${Leaf} value=${value} /></div>`;
  return html`<${Branch} value=${value} label=${key} opened=${opened} />`;
}

function Branch({ value, label, opened }) {
  const isList = Array.isArray(value);
  const keys = useMemo(() => (isList ? null : Object.keys(value)), [value]);
  const size = isList ? value.length : keys.length;
  const [begin, end] = isList ? "[]" : "{}";
  if (!size) return html`<div class="json">${label}${begin}${end}</div>`;
  const noun = isList ? (size > 1 ? "items" : "item") : size > 1 ? "entries" : "entry";
  const count = html`<span class="muted"> ${size.toLocaleString()} ${noun} </span>`;
  const words = html`${label}${begin}${count}${end}`;
  const entry = (at) => (isList ? [at, value[at]] : [keys[at], value[keys[at]]]);
  return html`<${Folding} words=${words} isOpen=${opened.has(value)}
    inside=${() => html`<${Range} from=${0} to=${size} entry=${entry} opened=${opened} />`} />`;
}

function Folding({ words, isOpen: atFirst, inside }) {
  const [isOpen, setOpen] = useState(atFirst);
  return html`
    <details class="json" open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>${words}</summary>${isOpen && html`<div class="json-inner">${inside()}</div>`}
    </details>`;
}

/* The entries of a range, or subranges if there are many. */
function Range({ from, to, entry, opened }) {
  const size = to - from;
  const levels = Math.ceil(Math.log(size) / Math.log(MOST_ENTRIES)) - 1;
  const step = size <= MOST_ENTRIES ? 1 : MOST_ENTRIES ** levels;
  const starts = Array.from({ length: Math.ceil(size / step) }, (_, at) => from + at * step);
  if (step === 1) {
    return starts.map((at) => {
      const [name, value] = entry(at);
      return html`<${Node} key=${at} name=${name} value=${value} opened=${opened} />`;
    });
  }
  return starts.map((start, at) => {
    const end = Math.min(start + step, to);
    const words = html`
      <span class="muted">${start.toLocaleString()} … ${(end - 1).toLocaleString()}</span>`;
    return html`<${Folding} key=${start} words=${words} isOpen=${at === 0}
      inside=${() => html`
        <${Range} from=${start} to=${end} entry=${entry} opened=${opened} />`} />`;
  });
}

function Leaf({ value }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== "string") {
    const kind = value === null ? "null" : typeof value === "boolean" ? "boolean" : "number";
    const shown = value instanceof Exact ? value.text : String(value);
    return html`<span class=${`scalar ${kind}`}>${shown}</span>`;
  }
  const isLong = value.length > MOST_CHARACTERS && !isWhole;
  const text = isLong ? value.slice(0, MOST_CHARACTERS) : value.slice(0, 100 * MOST_CHARACTERS);
  const left = value.length - text.length;
  return html`<span class="string">"<${Shown} text=${text} />${left > 0 ? "…" : '"'}</span>
    ${
      isLong &&
      html`<${Button} kind="quiet" onClick=${() => setWhole(true)}>
      ${left.toLocaleString()} more characters</${Button}>`
    }
    ${!isLong && left > 0 && html`
      <span class="muted"> ${left.toLocaleString()} more characters: see the text</span>`}`;
}
