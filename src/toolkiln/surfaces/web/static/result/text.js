// Text from a tool: everything in it is shown as text, with the characters that hide,
// reorder or control made visible, and never more of it at once than a browser draws quickly.
import { html, useEffect, useState } from "../lib.js";
import { Button, Copy, Trouble } from "../parts.js";

const PAGE = 20_000;
// Control characters but for line breaks and tabs; what is invisible or changes the direction of
// the text; tags. Joiners stay: emoji and several scripts need them.
const HIDDEN = [
  "[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\xad]|\\r(?!\\n)",
  "[\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f]",
  "[\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e0fff}]",
];
const SIGNS = new RegExp(`(?:${HIDDEN.join("|")})+`, "gu");

/* Text with its hidden characters made visible; for everything that a tool or a model wrote. */
export function Shown({ text }) {
  const said = String(text);
  const parts = [];
  let end = 0;
  for (const found of said.matchAll(SIGNS)) {
    parts.push(said.slice(end, found.index));
    parts.push(
      html`<span class="sign" title="Hidden characters">${[...found[0]].map(sign).join("")}</span>`,
    );
    end = found.index + found[0].length;
  }
  parts.push(said.slice(end));
  return html`<bdi class="shown">${parts}</bdi>`;
}

/* The escape that most languages use in strings. */
function sign(character) {
  const code = character.codePointAt(0);
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\u{${digits}}`;
}

/* A text of any length, a page at a time. */
export function LongText({ text, label }) {
  const [page, setPage] = useState(0);
  const start = edge(text, page * PAGE);
  const end = edge(text, (page + 1) * PAGE);
  return html`
    <div class="long-text copied">
      <pre tabindex="0" role="region"
        aria-label=${label}><${Shown} text=${text.slice(start, end)} /></pre>
      <${Copy} text=${text} label=${`Copy ${label}`} />
      <${Pager} page=${page} total=${text.length} onChange=${setPage} />
    </div>`;
}

/* A position that does not split a surrogate pair. */
function edge(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}

function Pager({ page, total, onChange }) {
  const pages = Math.ceil(total / PAGE);
  if (pages < 2) return null;
  return html`
    <span class="row pager">
      <${Button} kind="quiet" icon="chevron-left" aria-label="Previous page" disabled=${page === 0}
        onClick=${() => onChange(page - 1)} />
      <span role="status">
        ${page + 1} of ${pages.toLocaleString()} pages, ${total.toLocaleString()} characters</span>
      <${Button} kind="quiet" icon="chevron-right" aria-label="Next page"
        disabled=${page >= pages - 1} onClick=${() => onChange(page + 1)} />
    </span>`;
}

/* The full output of a truncated result, read from the server a page at a time. */
export function WholeOutput({ read, total, label }) {
  const [page, setPage] = useState(0);
  const [state, setState] = useState({ text: "" });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    read(page * PAGE, PAGE, control.signal).then(
      ({ text }) => setState({ text }),
      (error) => control.signal.aborted || setState((before) => ({ ...before, error })),
    );
    return () => control.abort();
  }, [page, turn]);
  return html`
    <div class="long-text">
      ${state.error && html`<${Trouble} error=${state.error} onRetry=${() => setTurn(turn + 1)} />`}
      <pre tabindex="0" role="region" aria-label=${label}><${Shown} text=${state.text} /></pre>
      <${Pager} page=${page} total=${total} onChange=${setPage} />
    </div>`;
}
