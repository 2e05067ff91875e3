// Entries with free names: a map, or additional properties of an object.
import { html, useRef, useState } from "../lib.js";
import { Button } from "../parts.js";
import { NullableControl } from "./controls.js";
import { Problems, elementOf, useForm } from "./context.js";
import { Remove } from "./entries.js";
import { Unfinished, isObject } from "./json.js";
import { useFocus } from "./lists.js";
import { newItem } from "./schema.js";
import { renamed, withEntry } from "./values.js";

const MOST_SHOWN = 100;

export function MapEntries({ schema, value, names, path, canAdd, onChange }) {
  const form = useForm();
  const box = useRef(null);
  const focusOn = useFocus(box);
  const [shown, setShown] = useState(MOST_SHOWN);
  const held = isObject(value) ? value : {};

  const add = () => {
    focusOn("li:last-child input");
    setShown(Math.max(shown, names.length + 1));
    onChange(withEntry(held, unused(held), newItem(form.root, schema)));
  };
  const remove = (name) => {
    focusOn(".list-add");
    onChange(withEntry(held, name, undefined));
  };
  return html`
    <div class="list map" ref=${box} id=${elementOf(form, path)}>
      ${names.length === 0 && html`<p class="muted">No entries.</p>`}
      <ul>${names.slice(0, shown).map(
        (name, at) => html`
        <li key=${at} onFocusOut=${() => form.touch([...path, name])}>
          <div class="item">
            <${Name} name=${name} at=${at} taken=${held}
              onRename=${(next) => onChange(renamed(held, name, next))} />
            <${NullableControl} schema=${schema} value=${held[name]} path=${[...path, name]}
              label=${`Value of ${name || "the unnamed entry"}`}
              onChange=${(next) =>
                onChange(withEntry(held, name, next === undefined ? unfinished() : next))} />
            <${Problems} path=${[...path, name]} />
          </div>
          <span class="item-tools">
            <${Remove} label=${`Remove ${name || "the entry"}`}
              onClick=${() => remove(name)} /></span>
        </li>`,
      )}</ul>
      <div class="row">
        ${
          names.length > shown &&
          html`<${Button} kind="quiet" onClick=${() => setShown(shown + MOST_SHOWN)}>
          ${(names.length - shown).toLocaleString()} more entries</${Button}>`
        }
        ${canAdd && html`
          <${Button} class="button list-add" icon="plus" onClick=${add}>Add entry</${Button}>`}
      </div>
    </div>`;
}

function unfinished() {
  return new Unfinished("", "needs a value");
}

function unused(held) {
  let name = "name";
  for (let number = 2; Object.hasOwn(held, name); number += 1) name = `name${number}`;
  return name;
}

/* The name of an entry; a duplicate stays in the field and changes nothing. */
function Name({ name, at, taken, onRename }) {
  const [typed, setTyped] = useState(null);
  const isTaken = typed !== null && typed !== name && Object.hasOwn(taken, typed);
  const type = (event) => {
    const next = event.target.value;
    const isFree = next === name || !Object.hasOwn(taken, next);
    setTyped(isFree ? null : next);
    if (isFree && next !== name) onRename(next);
  };
  return html`
    <div>
      <input type="text" class="map-name" aria-label=${`Name of entry ${at + 1}`}
        autocomplete="off" spellcheck="false" aria-invalid=${isTaken ? "true" : undefined}
        value=${typed ?? name} onInput=${type} />
      ${isTaken && html`<p class="problem" role="alert">An entry with this name already
        exists.</p>`}
    </div>`;
}
