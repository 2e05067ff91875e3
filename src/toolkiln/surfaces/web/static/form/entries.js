// The entries of an object, each with its name, what it is for, and whether it is given at all:
// omitted, null and a value are three different states, and all three are visible.
import { html, useRef } from "../lib.js";
import { Button } from "../parts.js";
import { Shown } from "../result/text.js";
import { Control, isFolded, isGroup, phraseOf } from "./controls.js";
import { Problems, elementOf, useForm, wrongAt } from "./context.js";
import { MapEntries } from "./maps.js";
import { Unfinished, isObject, write } from "./json.js";
import { boundsOf, flat, isNullable, kindOf, start, withoutNull } from "./schema.js";
import { equal, withEntry } from "./values.js";

/* All entries of an object. */
export function Entries({ schema, value, path, onChange }) {
  const form = useForm();
  const properties = schema.properties ?? {};
  const required = new Set(schema.required);
  const held = isObject(value) ? value : {};
  const others = schema.additionalProperties;
  const extra = Object.keys(held).filter((name) => !Object.hasOwn(properties, name));
  const takesMore = isObject(others) || others === true;
  return html`
    <div class="entries">
      ${Object.entries(properties).map(([name, part]) => {
        const own = Object.hasOwn(held, name) ? held[name] : undefined;
        const isRequired = required.has(name);
        if (isRequired && isSettled(form.root, part, own)) return null;
        return html`<${Entry} key=${name} name=${name} schema=${part} value=${own}
          path=${[...path, name]} isRequired=${isRequired}
          onChange=${(next) => onChange(withEntry(held, name, next))} />`;
      })}
      ${
        (takesMore || extra.length > 0) &&
        html`
        <${MapEntries} schema=${isObject(others) ? others : {}} value=${held} names=${extra}
          path=${path} canAdd=${takesMore} onChange=${onChange} />`
      }
    </div>`;
}

/* Whether there is nothing to choose: the value is fixed, such as a union's tag. */
function isSettled(root, part, value) {
  const schema = flat(root, part);
  return "const" in schema && equal(schema.const, value);
}

/* One entry of an object. */
function Entry({ name, schema, value, path, isRequired, onChange }) {
  const form = useForm();
  const whole = flat(form.root, schema);
  const inner = withoutNull(form.root, schema);
  const kept = useRef(); // the value before it was left out or null
  const hint = hintOf(whole, inner, isRequired);
  const kind = kindOf(inner);
  const group = isGroup(kind, inner);
  const takesNull = isNullable(form.root, whole);
  const isNull = value === null && takesNull;
  const state = value === undefined ? "absent" : isNull ? "null" : "value";
  // A nested (perhaps recursive) value stays collapsed until the user opens it.
  const isOpen = !isNull && (value !== undefined || !isFolded(kind) || isRequired);

  const setState = (next) => {
    if (value !== undefined && value !== null) kept.current = value;
    if (next === "absent") onChange(undefined);
    if (next === "null") onChange(null);
    if (next === "value") onChange(kept.current ?? firstValue(form.root, inner, kind));
  };
  const id = elementOf(form, path);
  const head = html`
    <span class="entry-name" id=${`${id}-name`}>${name}</span>${" "}
    <span class="entry-type">${phraseOf(form.root, inner)}${isRequired && ", required"}</span>`;
  const attributes = group && {
    role: "group",
    "aria-labelledby": `${id}-name`,
    "aria-describedby": hint ? `${id}-hint` : undefined,
  };
  return html`
    <div class=${`entry ${state} ${isRequired ? "required" : "optional"}`} ...${attributes}
      data-form=${form.id} data-wrong=${wrongAt(form, path).length ? "" : undefined}
      onFocusOut=${(event) =>
        event.currentTarget.contains(event.relatedTarget) || form.touch(path)}>
      <div class="entry-head">
        ${group ? html`<span>${head}</span>` : html`<label for=${id}>${head}</label>`}
        <${States} name=${name} id=${id} state=${state} whole=${whole} isOptional=${!isRequired}
          takesNull=${takesNull} onChange=${setState} />
      </div>
      ${hint && html`<p class="hint" id=${`${id}-hint`}><${Shown} text=${hint} /></p>`}
      ${
        isOpen &&
        html`<${Control} schema=${inner} value=${value} path=${path} hint=${hint}
        onChange=${onChange}
        placeholder=${!isRequired && "default" in whole ? usualText(whole.default) : undefined} />`
      }
      ${isNull && html`<p class="entry-closed"><code>null</code> is sent.</p>`}
      <${Problems} path=${path} />
    </div>`;
}

/* The choice between omitted, a value and null. */
function States({ name, id, state, whole, isOptional, takesNull, onChange }) {
  const offered = [
    isOptional && ["absent", "default" in whole ? "default" : "omitted"],
    ["value", "value"],
    takesNull && ["null", "null"],
  ].filter(Boolean);
  if (offered.length < 2) return null;
  return html`
    <span class="states" role="radiogroup" aria-label=${`What to send for ${name}`}>
      ${offered.map(
        ([each, word]) => html`
        <label class="state"><input type="radio" name=${`${id}-state`} value=${each}
          checked=${state === each} onChange=${() => onChange(each)} />${word}</label>`,
      )}
    </span>`;
}

/* The initial value when the user chooses to provide one. */
function firstValue(root, schema, kind) {
  const { default: usual, ...bare } = schema;
  const first = usual === null || usual === undefined ? start(root, bare) : usual;
  if (first !== undefined && first !== null) return first;
  return kind === "string" ? "" : new Unfinished("", "needs a value");
}

function hintOf(whole, inner, isRequired) {
  const usual =
    !isRequired && "default" in whole ? `Default: ${cut(write(whole.default, 0))}` : "";
  const words = [whole.description ?? inner.description, capital(boundsOf(inner)), usual];
  return words
    .filter(Boolean)
    .map((text) => (/[.!?:]$/.test(text.trim()) ? text.trim() : `${text.trim()}.`))
    .join(" ");
}

/* A default within the control that it would fill. */
function usualText(value) {
  return cut(typeof value === "string" ? value : write(value, 0));
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function cut(text) {
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

/* A button that removes an entry, labelled with its name. */
export function Remove({ label, onClick }) {
  return html`<${Button} kind="quiet" icon="x" aria-label=${label} title=${label}
    onClick=${onClick} />`;
}
