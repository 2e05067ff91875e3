// The whole value as JSON text. Text that is not JSON is kept, and its first error is shown
// with its position; the form view is unavailable in the meantime.
import { html, useId, useState } from "../lib.js";
import { Button } from "../parts.js";
import { isObject, parse, write } from "./json.js";
import { equal, placeOf } from "./values.js";

const MOST_LISTED = 10;

export function JsonText({ value, broken, problems, onChange, onBroken, onDiscard }) {
  const id = useId();
  const [typed, setTyped] = useState(null);
  const isTyped = typed !== null && equal(typed.value, value);
  const text = broken?.text ?? (isTyped ? typed.text : write(value));

  const type = (event) => {
    const written = event.target.value;
    try {
      const read = parse(written);
      if (!isObject(read)) {
        onBroken(written, { message: "arguments must be an object: { … }" });
        return;
      }
      setTyped({ text: written, value: read });
      onChange(read);
    } catch (error) {
      onBroken(written, error);
    }
  };
  const isWrong = Boolean(broken) || problems.length > 0;
  return html`
    <div class="json-text">
      <label class="hidden-text" for=${id}>Arguments as JSON</label>
      <textarea id=${id} rows=${Math.min(24, Math.max(8, text.split("\n").length + 1))}
        spellcheck="false" aria-invalid=${isWrong ? "true" : undefined}
        aria-describedby=${`${id}-problem`} value=${text} onInput=${type}></textarea>
      <div id=${`${id}-problem`} class="problem" role="status">
        ${
          broken
            ? html`<${Broken} error=${broken.error} target=${id} onDiscard=${onDiscard} />`
            : problems.length > 0 &&
              html`<ul>${problems.slice(0, MOST_LISTED).map(
                ({ path, message }) => html`
            <li><code>${placeOf(path) || "arguments"}</code> ${message}</li>`,
              )}</ul>`
        }
      </div>
    </div>`;
}

function Broken({ error, target, onDiscard }) {
  const show = () => {
    const area = document.getElementById(target);
    area.focus();
    area.setSelectionRange(error.offset, error.offset + 1);
  };
  return html`
    <p>${error.line !== undefined && `Line ${error.line}, column ${error.column}: `}
      ${error.message}</p>
    <div class="row">
      ${
        error.offset !== undefined &&
        html`
        <${Button} kind="quiet" icon="locate" onClick=${show}>Show position</${Button}>`
      }
      <${Button} kind="quiet" icon="undo-2" onClick=${onDiscard}>Discard text</${Button}>
    </div>`;
}
