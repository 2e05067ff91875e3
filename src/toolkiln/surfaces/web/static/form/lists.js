// Lists: items can be added, removed and moved; the first ones may have their own schemas.
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { Button } from "../parts.js";
import { NullableControl } from "./controls.js";
import { Problems, elementOf, useForm, wrongAt } from "./context.js";
import { Remove } from "./entries.js";
import { Unfinished } from "./json.js";
import { newItem } from "./schema.js";
import { moved, withItem, withMore, withoutItem } from "./values.js";

const MOST_SHOWN = 100;

export function List({ schema, value, path, onChange }) {
  const form = useForm();
  const items = Array.isArray(value) ? value : [];
  const fixed = schema.prefixItems ?? [];
  const keys = useKeys(items.length);
  const [shown, setShown] = useState(MOST_SHOWN);
  const box = useRef(null);
  const focusOn = useFocus(box);
  // A tuple takes no more items, even without maxItems.
  const most = schema.maxItems ?? (fixed.length && !schema.items ? fixed.length : Infinity);
  const name = path.at(-1);

  const add = () => {
    keys.add();
    focusOn(`[data-item="${items.length}"] :is(input, select, textarea, button)`);
    setShown(Math.max(shown, items.length + 1));
    onChange(withMore(items, newItem(form.root, fixed[items.length] ?? schema.items)));
  };
  const remove = (at) => {
    keys.remove(at);
    focusOn(
      items.length > 1
        ? `[data-item="${Math.max(0, at - 1)}"] .item-tools button:last-child`
        : ".list-add",
    );
    onChange(withoutItem(items, at));
  };
  const move = (from, to) => {
    keys.move(from, to);
    focusOn(`[data-item="${to}"] [data-move="${to < from ? "up" : "down"}"]`);
    onChange(moved(items, from, to));
  };
  const row = (item, at) => html`
    <li key=${keys.at(at)} data-item=${at} data-form=${form.id}
      data-wrong=${wrongAt(form, [...path, at]).length ? "" : undefined}
      onFocusOut=${() => form.touch([...path, at])}>
      <div class="item">
        <${NullableControl} schema=${fixed[at] ?? schema.items ?? {}} value=${item}
          path=${[...path, at]} label=${`${name}, item ${at + 1}`}
          onChange=${(next) => onChange(withItem(items, at, next ?? absent(next)))} />
        <${Problems} path=${[...path, at]} />
      </div>
      <span class="item-tools">
        ${
          at >= fixed.length &&
          html`
          <${Button} kind="quiet" icon="chevron-up" data-move="up"
            aria-label=${`Move item ${at + 1} up`}
            disabled=${at <= fixed.length} onClick=${() => move(at, at - 1)} />
          <${Button} kind="quiet" icon="chevron-down" data-move="down"
            aria-label=${`Move item ${at + 1} down`}
            disabled=${at === items.length - 1} onClick=${() => move(at, at + 1)} />`
        }
        ${
          (at >= fixed.length || items.length > most) &&
          html`
          <${Remove} label=${`Remove item ${at + 1}`} onClick=${() => remove(at)} />`
        }
      </span>
    </li>`;
  return html`
    <div class="list" ref=${box} id=${elementOf(form, path)}>
      ${items.length === 0 && html`<p class="muted">No items.</p>`}
      <ol>${items.slice(0, shown).map(row)}</ol>
      <div class="row">
        ${
          items.length > shown &&
          html`<${Button} kind="quiet" onClick=${() => setShown(shown + MOST_SHOWN)}>
          ${(items.length - shown).toLocaleString()} more items</${Button}>`
        }
        ${
          items.length < most &&
          html`<${Button} class="button list-add" icon="plus" onClick=${add}
          aria-label=${`Add item to ${name}`}>Add</${Button}>`
        }
      </div>
    </div>`;
}

function absent(next) {
  return next === null ? null : new Unfinished("", "needs a value");
}

/* Keys that stay with their items, so that a moved item keeps its focus and half-typed text. */
function useKeys(length) {
  const kept = useRef({ keys: [], next: 0 });
  const { current } = kept;
  const fresh = () => `item ${current.next++}`;
  while (current.keys.length < length) current.keys.push(fresh());
  current.keys.length = length;
  return {
    at: (index) => current.keys[index],
    add: () => current.keys.push(fresh()),
    remove: (index) => current.keys.splice(index, 1),
    move: (from, to) => current.keys.splice(to, 0, ...current.keys.splice(from, 1)),
  };
}

/* Focus an element that the next render creates. */
export function useFocus(box) {
  const wanted = useRef(null);
  useLayoutEffect(() => {
    const selector = wanted.current;
    wanted.current = null;
    if (!selector) return;
    const found = [...box.current.querySelectorAll(selector)].find((element) => !element.disabled);
    (found ?? box.current.querySelector("button:not(:disabled)"))?.focus();
  });
  return (selector) => {
    wanted.current = selector;
  };
}
