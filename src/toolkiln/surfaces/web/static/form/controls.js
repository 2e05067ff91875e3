// The control for each kind of schema. Groups (objects, lists, maps, unions) contain other controls
// and are in modules of their own.
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { tied, useForm } from "./context.js";
import { Entries } from "./entries.js";
import { Exact, Unfinished, isNumber, parse, typedNumber, write } from "./json.js";
import { List } from "./lists.js";
import { MapEntries } from "./maps.js";
import { flat, isNullable, kindOf, nameOf, withoutNull } from "./schema.js";
import { Union } from "./unions.js";
import { equal } from "./values.js";

const FOLDED = ["object", "list", "map", "union"];
const MOST_RADIOS = 4;
const MOST_RADIO_CHARACTERS = 40;

/* Whether a control consists of several, so that one label is not enough. */
export function isGroup(kind, schema) {
  return isFolded(kind) || kind === "boolean" || (kind === "enum" && isRadios(schema));
}

/* Whether a control contains the controls of other values. */
export function isFolded(kind) {
  return FOLDED.includes(kind);
}

/* The kind of a value in a few words. */
export function phraseOf(root, schema) {
  const kind = kindOf(schema);
  if (kind === "union") return "one of several kinds";
  if (kind === "enum") return "choice";
  if (kind === "const") return "fixed";
  if (kind === "json" && !schema.type) return "any value, as JSON";
  const name = nameOf(root, { ...schema, title: undefined });
  return kind === "json" ? `${name}, as JSON` : name;
}

/* The control for a value that is not null, or null if nothing else is possible. */
export function Control({ schema, value, path, onChange, hint, placeholder, label }) {
  const form = useForm();
  const whole = flat(form.root, schema);
  const kind = kindOf(whole);
  const attributes = { ...tied(form, path, { hint }), "aria-label": label };
  const given = { schema: whole, value, path, onChange, attributes, placeholder };
  if (kind === "const")
    return html`<${Fixed} value=${whole.const} given=${value} onChange=${onChange} />`;
  if (kind === "nothing")
    return html`<${Fixed} value=${null} given=${value} onChange=${onChange} />`;
  if (kind === "enum") return html`<${Choice} ...${given} options=${whole.enum} />`;
  if (kind === "boolean") return html`<${Choice} ...${given} options=${[true, false]} />`;
  if (kind === "number") return html`<${NumberText} ...${given} />`;
  if (kind === "string" && NATIVE[whole.format]) {
    return html`<${Moment} ...${given} native=${NATIVE[whole.format]} />`;
  }
  if (kind === "string") return html`<${Text} ...${given} />`;
  if (kind === "list") return html`<${List} ...${given} />`;
  if (kind === "union") return html`<${Union} ...${given} />`;
  if (kind === "object") return html`<${Entries} ...${given} />`;
  if (kind === "map") {
    return html`<${MapEntries} ...${given} schema=${whole.additionalProperties} value=${value ?? {}}
      names=${Object.keys(value ?? {})} canAdd />`;
  }
  return html`<${Json} ...${given} />`;
}

/* A value of a list or map, which may be null without a choice beside it. */
export function NullableControl({ schema, value, onChange, label, ...rest }) {
  const form = useForm();
  if (!isNullable(form.root, schema)) {
    return html`<${Control} schema=${schema} value=${value} onChange=${onChange} label=${label}
      ...${rest} />`;
  }
  const toggle = (event) => onChange(event.target.checked ? null : undefined);
  return html`
    <div class="nullable">
      ${
        value === null
          ? html`<p class="entry-closed">null</p>`
          : html`
        <${Control} schema=${withoutNull(form.root, schema)} value=${value} onChange=${onChange}
          label=${label} ...${rest} />`
      }
      <label class="state">
        <input type="checkbox" checked=${value === null} onChange=${toggle} /> null</label>
    </div>`;
}

function Fixed({ value, given, onChange }) {
  if (equal(value, given)) return html`<p class="entry-closed"><code>${write(value, 0)}</code></p>`;
  return html`<label class="state"><input type="checkbox" onChange=${() => onChange(value)} />
    <code>${write(value, 0)}</code></label>`;
}

function labelsOf(options) {
  const plain = options.map((one) => (typeof one === "string" && one.trim() ? one : write(one, 0)));
  // 1 and "1" look alike until the quotes are there.
  return new Set(plain).size === plain.length ? plain : options.map((one) => write(one, 0));
}

function isRadios(schema) {
  const labels = labelsOf(schema.enum);
  return labels.length <= MOST_RADIOS && labels.join("").length <= MOST_RADIO_CHARACTERS;
}

/* A choice between a few JSON values. */
function Choice({ options, value, onChange, attributes, path }) {
  const form = useForm();
  const labels = labelsOf(options);
  const current = options.findIndex((one) => equal(one, value));
  if (isRadios({ enum: options })) {
    const { id, ...described } = attributes;
    return html`
      <div class="radios" role="radiogroup" id=${id} ...${described}
        aria-labelledby=${attributes["aria-label"] ? undefined : `${id}-name`}>
        ${labels.map(
          (label, at) => html`
          <label><input type="radio" name=${`${form.id}-${id}`} checked=${at === current}
            onChange=${() => onChange(options[at])} /> ${label}</label>`,
        )}
      </div>`;
  }
  return html`
    <select ...${attributes} value=${current}
      onChange=${(event) => onChange(options[event.target.value])} key=${path.join()}>
      ${current < 0 && html`
        <option value="-1">${value === undefined ? "Choose…" : write(value, 0)}</option>`}
      ${labels.map((label, at) => html`<option value=${at}>${label}</option>`)}
    </select>`;
}

/* A number exactly as typed: an <input type=number> would round long ones and drop half-typed
   ones. */
function NumberText({ schema, value, onChange, attributes, placeholder }) {
  const [typed, setTyped] = useState("");
  const isTyped = isNumber(value) && typed && equal(typedNumber(typed), value);
  const text = isTyped ? typed : textOf(value);
  const type = (event) => {
    const written = event.target.value;
    setTyped(written);
    if (!written.trim()) return onChange(undefined);
    const number = typedNumber(written);
    return onChange(number ?? new Unfinished(written, "is not a number"));
  };
  return html`
    <div>
      <input type="text" inputmode=${schema.type === "integer" ? "numeric" : "decimal"}
        autocomplete="off" class="number" ...${attributes} value=${text}
        placeholder=${placeholder} onInput=${type} />
      ${
        value instanceof Exact &&
        html`
        <p class="hint">Too long for an exact number in a browser; it is sent exactly as you typed
          it.</p>`
      }
    </div>`;
}

function textOf(value) {
  if (value === undefined || value === null) return "";
  if (value instanceof Unfinished) return value.text;
  return typeof value === "string" ? value : write(value, 0);
}

const NATIVE = {
  __proto__: null,
  date: { type: "date", fits: /^\d{4}-\d{2}-\d{2}$/ },
  "date-time": {
    type: "datetime-local",
    step: "1",
    fits: /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?$/,
  },
  time: { type: "time", step: "1", fits: /^\d{2}:\d{2}(:\d{2})?$/ },
};

/* A date or time: the browser's own picker as long as that can hold the value, or text. */
function Moment({ native, ...given }) {
  const { value, onChange, attributes } = given;
  const [asText, setAsText] = useState(false);
  const switched = useRef(false);
  useLayoutEffect(() => {
    if (switched.current) document.getElementById(attributes.id)?.focus();
    switched.current = false;
  }, [asText]);
  const change = () => {
    switched.current = true;
    setAsText(!asText);
  };
  const text = textOf(value);
  const canPick = !text || native.fits.test(text);
  const isPicker = canPick && !asText;
  // Emptying the picker leaves the value out: an empty text is no date.
  const pick = (event) => onChange(event.target.value || undefined);
  return html`
    <div class="picker">
      ${
        isPicker
          ? html`<input type=${native.type} step=${native.step} ...${attributes} value=${text}
              onChange=${pick} />`
          : html`<${Text} ...${given} />`
      }
      ${
        canPick &&
        html`<button type="button" class="link" onClick=${change}>
          ${isPicker ? "enter it as text" : "use the picker"}</button>`
      }
    </div>`;
}

function Text({ schema, value, onChange, attributes, placeholder }) {
  const text = textOf(value);
  const type = (event) => onChange(event.target.value);
  const isSecret = schema.format === "password" || schema.writeOnly;
  const isShort = isSecret || schema.format || schema.pattern || schema.maxLength <= 100;
  const empty = value === "" && html`<p class="hint">An empty text is sent.</p>`;
  if (isShort && !text.includes("\n")) {
    return html`<div><input type=${isSecret ? "password" : "text"} autocomplete="off"
      spellcheck="false" ...${attributes} value=${text} placeholder=${placeholder}
      onInput=${type} />${empty}</div>`;
  }
  return html`<div><textarea rows="1" class="grows prose" ...${attributes} value=${text}
    placeholder=${placeholder} onInput=${type}></textarea>${empty}</div>`;
}

/* Any value, as JSON. */
function Json({ schema, value, onChange, attributes, placeholder }) {
  const [typed, setTyped] = useState(null);
  const isTyped = typed !== null && equal(typed.value, value);
  const text = isTyped
    ? typed.text
    : value instanceof Unfinished
      ? value.text
      : value === undefined
        ? ""
        : write(value);
  const type = (event) => {
    const written = event.target.value;
    const read = written.trim() ? valueFrom(written) : undefined;
    setTyped({ text: written, value: read });
    onChange(read);
  };
  const example =
    { object: '{"name": 1}', array: "[1, 2]" }[schema.type] ?? '"text", 1, [true], {"name": null}';
  return html`<textarea rows="2" class="grows" spellcheck="false" ...${attributes} value=${text}
    placeholder=${placeholder ?? `JSON, such as ${example}`} onInput=${type}></textarea>`;
}

function valueFrom(text) {
  try {
    return parse(text);
  } catch (error) {
    return new Unfinished(text, `line ${error.line}, column ${error.column}: ${error.message}`);
  }
}
