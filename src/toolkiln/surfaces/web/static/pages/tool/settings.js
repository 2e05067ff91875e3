// The settings of a tool: the operator's values and the user's own.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { SchemaForm } from "../../form.js";
import { html, useState } from "../../lib.js";
import { Badge, Busy, Button, Field, Trouble, toast, useRequest } from "../../parts.js";

/* The settings of a tool that the user may see. */
export function settable(tool, who) {
  return [
    tool.settings.includes("operator") && who.may("ADMIN")
      && { title: "Settings for all users", own: false },
    tool.settings.includes("user") && { title: "Your own settings", own: true },
  ].filter(Boolean);
}

export function Settings({ tool, path }) {
  return settable(tool, useWho()).map(({ title, own }) => html`
    <${Values} key=${title} title=${title} path=${`${path}/settings${own ? "?own=true" : ""}`}
      digest=${tool.digest} />`);
}

function Values({ title, path, digest }) {
  const found = useRequest((signal) => api.get(path, null, { signal }), [path, digest]);
  const [saves, setSaves] = useState(0);
  const saved = () => {
    found.again();
    setSaves(saves + 1);
  };
  return html`
    <section class="panel stack" aria-label=${title}>
      <div class="row"><h2>${title}</h2>
        ${found.value?.missing && html`
          <${Badge} kind="warn" icon="triangle-alert">not set up</${Badge}>`}</div>
      ${found.error && html`<${Trouble} error=${found.error} onRetry=${found.again} />`}
      ${!found.value && !found.error && html`<${Busy} />`}
      ${found.value?.missing && html`<p class="hint">Its calls fail: ${found.value.missing}.</p>`}
      ${found.value && html`
        <${Editing} key=${`${saves} ${found.busy}`} found=${found.value} path=${path}
          onSave=${saved} />`}
    </section>`;
}

function Editing({ found: { parameters, values }, path, onSave }) {
  const [open, secrets] = parted(parameters);
  const before = Object.fromEntries(
    Object.entries(values).filter(([name]) => !secrets.includes(name)),
  );
  const [now, setNow] = useState(before);
  const [typed, setTyped] = useState({});
  const [forgotten, setForgotten] = useState([]);
  const [state, setState] = useState({ busy: false });
  const changed = Object.fromEntries(
    Object.entries(now).filter(([name, value]) => !same(value, before[name])),
  );
  const unset = [...Object.keys(before).filter((name) => !(name in now)), ...forgotten];
  const patch = { values: { ...changed, ...typed }, unset };
  const isChanged = unset.length > 0 || Object.keys(patch.values).length > 0;

  const save = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      await api.patch(path, patch);
      toast("Settings saved");
      onSave();
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  const type = (name, text) => {
    const { [name]: _, ...others } = typed;
    setTyped(text ? { ...others, [name]: text } : others);
  };
  const forget = (name) => setForgotten(forgotten.includes(name)
    ? forgotten.filter((each) => each !== name) : [...forgotten, name]);
  return html`
    <form class="stack" onSubmit=${save}>
      ${Object.keys(open.properties).length > 0 && html`
        <${SchemaForm} schema=${open} value=${now} onChange=${(value) => setNow(value)} />`}
      ${secrets.map((name) => html`
        <${Secret} key=${name} name=${name} schema=${parameters.properties[name]}
          isSet=${name in values} isForgotten=${forgotten.includes(name)} text=${typed[name] ?? ""}
          onType=${(text) => type(name, text)} onForget=${() => forget(name)} />`)}
      ${state.error && html`<${Trouble} error=${state.error} />`}
      <div class="row"><${Button} type="submit" kind="primary" icon="save" busy=${state.busy}
        disabled=${!isChanged}>Save</${Button}></div>
    </form>`;
}

/* A secret can be set, replaced and removed, and is never shown. */
function Secret({ name, schema, isSet, isForgotten, text, onType, onForget }) {
  const state = isForgotten ? "It will be removed when you save."
    : isSet ? "It is set. It is never shown." : "It is not set.";
  const label = html`
    <span class="entry-name">${name}</span> <span class="entry-type">secret</span>`;
  const hint = [schema.description, state].filter(Boolean).join(" ");
  const action = isForgotten ? "Keep" : "Remove";
  return html`
    <${Field} label=${label} hint=${hint}>${(attributes) => html`
      <div class="row secret">
        <input ...${attributes} type="password" autocomplete="new-password" value=${text}
          disabled=${isForgotten} placeholder=${isSet ? "another value" : ""}
          onInput=${(event) => onType(event.target.value)} />
        ${isSet && html`<${Button} kind="quiet" icon=${isForgotten ? "undo-2" : "trash-2"}
          onClick=${onForget} aria-label=${`${action} ${name}`}>${action}</${Button}>`}
      </div>`}</${Field}>`;
}

/* The schema of the visible settings, and the names of the secrets. */
function parted(schema) {
  const isSecret = (part) => [part, ...(part.anyOf ?? [])]
    .some((each) => each.format === "password" || each.writeOnly || each.secret);
  const properties = Object.entries(schema.properties ?? {});
  const secrets = properties.filter(([, part]) => isSecret(part)).map(([name]) => name);
  const open = {
    ...schema,
    properties: Object.fromEntries(properties.filter(([name]) => !secrets.includes(name))),
    required: (schema.required ?? []).filter((name) => !secrets.includes(name)),
  };
  return [open, secrets];
}

function same(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}
