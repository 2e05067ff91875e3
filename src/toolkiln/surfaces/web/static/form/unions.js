// A union: the choice of an alternative, and its control. Entered values are kept if they fit.
import { html, useRef, useState } from "../lib.js";
import { bestVariant, problemsOf } from "./check.js";
import { NullableControl } from "./controls.js";
import { elementOf, useForm } from "./context.js";
import { Unfinished, isNumber, isObject, typedNumber, write } from "./json.js";
import { flat, kindOf, mayBe, nameOf, newItem, variants } from "./schema.js";
import { choose } from "./values.js";

export function Union({ schema, value, path, onChange, attributes }) {
  const form = useForm();
  const { root } = form;
  const choices = variants(schema);
  const [picked, setPicked] = useState(null);
  const kept = useRef(new Map());
  const at = current(root, choices, value, picked);

  const pick = (next) => {
    kept.current.set(at, value);
    setPicked(next);
    onChange(switched(root, choices[next], value, kept.current.get(next)));
  };
  const tag = schema.discriminator?.propertyName ?? commonTag(root, choices);
  const id = `${elementOf(form, path)}-kind`;
  return html`
    <div class="union">
      <div class="union-kind">
        <label for=${id} class="hidden-text">Kind of ${path.at(-1)}</label>
        <select id=${id} value=${at} aria-invalid=${attributes["aria-invalid"]}
          onChange=${(event) => pick(Number(event.target.value))}>
          ${at < 0 && html`<option value="-1">Choose a kind…</option>`}
          ${choices.map(
            (one, index) => html`<option value=${index}>${nameOf(root, one, tag)}</option>`,
          )}
        </select>
      </div>
      ${
        at >= 0 &&
        html`<${NullableControl} key=${at} schema=${choices[at]} value=${value} path=${path}
        label=${kindOf(flat(root, choices[at])) === "object" ? undefined : String(path.at(-1))}
        onChange=${(next) => onChange(choose(next, choices[at]))} />`
      }
    </div>`;
}

/* The chosen alternative while the value can match it, else the closest one. */
function current(root, choices, value, picked) {
  if (picked !== null && picked < choices.length && mayBe(root, choices[picked], value)) {
    return picked;
  }
  return value === undefined || value instanceof Unfinished ? 0 : bestVariant(root, choices, value);
}

/* The property that has a different fixed value in every alternative. */
function commonTag(root, choices) {
  const first = flat(root, choices[0]).properties ?? {};
  return Object.keys(first).find((name) =>
    choices.every((one) => "const" in flat(root, flat(root, one).properties?.[name] ?? {})),
  );
}

/* The initial value of an alternative: its previous one, or what fits of the current one. */
function switched(root, variant, value, before) {
  const isGood = (one) => one !== undefined && !problemsOf(root, variant, one).length;
  if (isGood(value)) return choose(copyOf(value), variant);
  if (before !== undefined) return choose(merged(root, variant, copyOf(before), value), variant);
  const single = Array.isArray(value) ? value[0] : value;
  const same = [single, asText(single), asNumber(single)].filter((one) => one !== undefined);
  const turned = [...same, ...same.map((one) => [one])];
  const fitting = turned.find(isGood);
  if (fitting !== undefined) return choose(fitting, variant);
  const first = newItem(root, variant);
  return choose(merged(root, variant, first, value), variant);
}

function copyOf(value) {
  if (Array.isArray(value)) return [...value];
  return isObject(value) ? { ...value } : value;
}

function merged(root, variant, first, value) {
  if (!isObject(first) || !isObject(value)) return first;
  const properties = flat(root, variant).properties ?? {};
  const fitting = Object.entries(value).filter(([name, part]) => {
    const isWanted = Object.hasOwn(properties, name) && !("const" in flat(root, properties[name]));
    return isWanted && !problemsOf(root, properties[name], part).length;
  });
  return Object.fromEntries([...Object.entries(first), ...fitting]);
}

function asText(value) {
  return isNumber(value) || typeof value === "boolean" ? write(value, 0) : undefined;
}

function asNumber(value) {
  return typeof value === "string" ? typedNumber(value) : undefined;
}
