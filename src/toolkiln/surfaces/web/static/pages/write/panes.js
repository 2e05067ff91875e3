// The panes beside the editor: previews for people and for models, and a test run.
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Markdown } from "../../markdown.js";
import { Badge, Copy, Empty, Field, Icon, Tabs, Trouble } from "../../parts.js";
import { Tree } from "../../result/tree.js";
import { TestCall } from "../../test_call.js";
import { Note, reason } from "./note.js";

const TABS = [
  { id: "try", title: "Try it" },
  { id: "schema", title: "Schema" },
  { id: "docs", title: "Documentation" },
  { id: "model", title: "As the model sees it" },
];
export const PROVIDERS = [
  "openai", "openai-strict", "openai-responses", "openai-responses-strict",
  "anthropic", "anthropic-strict", "gemini", "mcp",
];
const HEALTH = {
  STRICT_COMPLIANT: ["ok", "Strict", "Providers can enforce it."],
  NON_STRICT_ONLY:
    ["info", "Not strict", "Providers' strict modes cannot enforce all of it."],
  INVALID: ["bad", "Invalid", "This is not a schema of arguments."],
};

export function Panes({ source, tools, prospects, isBroken, provider, onProvider }) {
  const [tab, setTab] = useState(prospects.running.allowed ? "try" : "schema");
  const [chosen, setChosen] = useState("");
  const tool = tools.find(({ name }) => name === chosen) ?? tools[0];
  if (!tool) {
    return html`<${Empty} icon="file-question" title="No tool yet">
      Write a public function with a docstring: it becomes a tool, and is shown here.</${Empty}>`;
  }
  const shown = {
    schema: () => html`<${Schema} tool=${tool} />`,
    docs: () => html`<${Markdown} text=${tool.page} />`,
    model: () => html`<${Model} tool=${tool} provider=${provider} onProvider=${onProvider} />`,
  }[tab];
  return html`
    ${tools.length > 1 && html`
      <label class="row">Tool <select value=${tool.name}
        onChange=${(event) => setChosen(event.target.value)}>
        ${tools.map(({ name }) => html`<option>${name}</option>`)}</select></label>`}
    <${Tabs} tabs=${TABS} current=${tab} onChange=${setTab} label="About the tool" />
    ${isBroken && html`<p class="hint"><${Icon} name="history" /> As of the last text that could
      be read.</p>`}
    <div role="tabpanel" aria-label="Try it" hidden=${tab !== "try"} class="pane">
      <${Try} key=${tool.name} ...${{ source, tool, prospects, isBroken }} /></div>
    ${shown && html`
      <div role="tabpanel" aria-label=${TABS.find(({ id }) => id === tab).title} class="pane">
        ${shown()}</div>`}`;
}

/* Run the source in the editor, saved or not. */
function Try({ source, tool, prospects, isBroken }) {
  const { running } = prospects;
  if (!running.allowed) {
    return html`<${Note} kind="warn" icon="lock" hint=${running.hint}>
      It cannot be run: ${reason(running)}.</${Note}>`;
  }
  const run = (args, signal) => {
    const body = { source, tool: tool.name, arguments: args };
    return api.stream("POST", "/v1/run", body, { signal });
  };
  return html`
    <p class="hint">Runs what is in the editor, in the sandbox and without any granted permission.
      Nothing is saved.</p>
    ${isBroken && html`<p class="problem">Correct its errors before you run it.</p>`}
    <${TestCall} schema=${tool.parameters} run=${run} submitLabel="Run" />`;
}

function Schema({ tool }) {
  const [kind, title, about] = HEALTH[tool.health.level];
  return html`
    <div class="row">
      <${Badge} kind=${kind}>${title}</${Badge}><span class="hint">${about}</span></div>
    ${tool.health.points.length > 0 && html`<ul class="write-points">
      ${tool.health.points.map(({ path, reason }) => html`
        <li><code>${path || "/"}</code> ${reason}</li>`)}</ul>`}
    <${Json} title="Parameters" value=${tool.parameters} />
    ${tool.returns && html`<${Json} title="Return value" value=${tool.returns} />`}
    ${tool.requirements.length > 0 && html`<p>Needs ${tool.requirements.map((one, at) => html`
      ${at > 0 && ", "}<code>${one}</code>`)}</p>`}`;
}

function Json({ title, value }) {
  return html`
    <section><div class="row"><h3>${title}</h3>
      <${Copy} text=${JSON.stringify(value, null, 2)} label=${`Copy: ${title}`} /></div>
      <${Tree} value=${value} /></section>`;
}

function Model({ tool, provider, onProvider }) {
  const { form } = tool;
  return html`
    <${Field} label="Provider">${(attributes) => html`
      <select ...${attributes} value=${provider}
        onChange=${(event) => onProvider(event.target.value)}>
        ${PROVIDERS.map((name) => html`<option>${name}</option>`)}</select>`}</${Field}>
    ${form?.left_out.length > 0 && html`
      <${Trouble} error=${{
        message: "this provider would refuse the tool",
        errors: form.left_out.map((message) => ({ message })),
      }} />`}
    ${form?.losses.length > 0 && html`
      <section><h3>What it does not enforce</h3>
        <ul class="write-points">${form.losses.map((loss) => html`
          <li><code>${loss.path || "/"}</code> ${loss.keyword}: ${loss.reason}</li>`)}</ul>
      </section>`}
    ${form?.tool && html`<${Json} title="In the request" value=${form.tool} />`}`;
}
