// A form made from a JSON Schema, or its JSON text: two views of one value. The parts of the
// form are in form/, from the pure ones (json, schema, values, texts, check) to the controls.
import { check } from "./form/check.js";
import { Entries } from "./form/entries.js";
import { JsonText } from "./form/jsontext.js";
import { FormContext, Problems } from "./form/context.js";
import { flat, usableDefault } from "./form/schema.js";
import { keyOf, pathOf, placeOf, valueAt } from "./form/values.js";
import { html, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { Button, Tabs } from "./parts.js";

export { usableDefault };

const MODES = [
  { id: "form", title: "Form" },
  { id: "json", title: "JSON" },
];
const MOST_NAMED = 4;

/* The form. `onChange(value, isValid)` also comes without a change of the value, when it becomes
   known whether it is valid. `problems` ([{place, message}]) are a server's: each is shown at its
   field until the value there changes. */
export function SchemaForm({ schema, value, onChange, problems = [] }) {
  const id = useId();
  const [mode, setMode] = useState("form");
  const [broken, setBroken] = useState(null); // text that is not JSON, and why
  const [isAsked, setAsked] = useState(false); // whether to show missing values too
  const [touched, setTouched] = useState(() => new Set());
  const first = useMemo(() => usableDefault(schema), [schema]);
  const held = value ?? first;
  const own = useMemo(() => check(schema, held), [schema, held]);
  const fromServer = useServerProblems(problems, held);
  const isValid = own.length === 0 && !broken;

  const last = useRef({});
  const tell = (next, isGood) => {
    last.current = { value: next, isGood };
    onChange(next, isGood);
  };
  // During rendering: any later, it could undo what was typed in the meantime.
  useLayoutEffect(() => {
    if (last.current.value !== held || last.current.isGood !== isValid) tell(held, isValid);
  }, [held, isValid]);

  const change = (next) => tell(next, check(schema, next).length === 0);
  const spoil = (text, error) => {
    setBroken({ text, error });
    tell(held, false);
  };
  const form = {
    root: schema,
    id,
    problems: byPlace([...own, ...fromServer]),
    isShown: (path) => isAsked || touched.has(keyOf(path)),
    touch: (path) => touched.has(keyOf(path)) || setTouched(new Set(touched).add(keyOf(path))),
  };
  return html`
    <div class="schema-form">
      <div class="views">
        <${Tabs} tabs=${MODES} current=${mode} label="Input mode"
          onChange=${(next) => broken || setMode(next)} />
      </div>
      ${
        mode === "form"
          ? html`<${FormContext.Provider} value=${form}>
              <${Body} schema=${schema} value=${held} onChange=${change} /><//>`
          : html`<${JsonText} value=${held} broken=${broken} problems=${[...own, ...fromServer]}
            onChange=${(next) => {
              setBroken(null);
              change(next);
            }}
            onBroken=${spoil} onDiscard=${() => setBroken(null)} />`
      }
      ${
        mode === "form" &&
        html`<${Summary} own=${own} form=${form} onAsk=${() => setAsked(true)} />`
      }
    </div>`;
}

function Body({ schema, value, onChange }) {
  const whole = flat(schema, schema);
  const isEmpty =
    !Object.keys(whole.properties ?? {}).length && whole.additionalProperties === false;
  if (isEmpty && !Object.keys(value).length)
    return html`<p class="muted">This tool takes no arguments.</p>`;
  return html`
    <${Entries} schema=${whole} value=${value} path=${[]} onChange=${onChange} />
    <${Problems} path=${[]} />`;
}

/* The problems that make the form invalid, with a link to the first field. */
function Summary({ own, form, onAsk }) {
  const [isDue, setDue] = useState(false);
  useEffect(() => {
    if (!isDue) return;
    setDue(false);
    const field = document.querySelector(`[data-form="${form.id}"][data-wrong]`);
    const control = "input, select, textarea, button";
    const wrong = field?.querySelector(
      `:is(${control})[aria-invalid], [aria-invalid] :is(${control})`,
    );
    (wrong ?? field?.querySelector(control))?.focus();
  }, [isDue]);
  if (!own.length) return null;
  const show = () => {
    onAsk();
    setDue(true);
  };
  const names = [...new Set(own.map(({ path }) => placeOf(path)))];
  const more = names.length - MOST_NAMED;
  return html`
    <p class="form-summary">
      <span>${own.every(({ isMissing }) => isMissing) ? "Required" : "Invalid"}: ${names
        .slice(0, MOST_NAMED)
        .map((name, at) => html`${at > 0 && ", "}<code>${name || "all arguments"}</code>`)}${
        more > 0 && ` and ${more} more`
      }</span>
      <${Button} kind="quiet" icon="arrow-up" onClick=${show}>Show</${Button}>
    </p>`;
}

function byPlace(problems) {
  const places = new Map();
  for (const problem of problems) {
    const key = keyOf(problem.path);
    places.set(key, [...(places.get(key) ?? []), problem]);
  }
  return places;
}

/* The server's problems, until the values they refer to change. */
function useServerProblems(problems, value) {
  const latest = useRef({ problems: [], value });
  if (latest.current.problems !== problems) {
    latest.current = { problems, value };
  }
  const before = latest.current.value;
  return useMemo(
    () =>
      problems
        .map(({ place, message }) => ({ path: known(before, pathOf(place ?? "")), message }))
        .filter(({ path }) => valueAt(value, path) === valueAt(before, path)),
    [problems, value],
  );
}

/* A place that can be shown: what cannot be read is about the whole. */
function known(value, path) {
  if (!path) return [];
  const parent = path.slice(0, -1);
  return !parent.length || valueAt(value, parent) !== undefined ? path : [];
}
