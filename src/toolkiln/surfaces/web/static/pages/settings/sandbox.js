// The output of `toolkiln doctor`: the sandbox modes, tested on the server's machine.
import { html } from "../../lib.js";
import { Badge, Button, Icon, Trouble } from "../../parts.js";
import { Loaded, useResponse } from "./shared.js";

export function Sandbox() {
  const request = useResponse("/v1/doctor");
  return html`
    <div class="row">
      <p class="muted grow">Toolkiln tries every mode with a test call. Calls run in the first mode
        that works and is allowed.</p>
      <${Button} icon="rotate-cw" busy=${request.busy} onClick=${request.again}
        >Try again</${Button}>
    </div>
    ${request.value && request.error && html`<${Trouble} error=${request.error} />`}
    <${Loaded} request=${request} label="Testing the sandbox">${({ facts, trials, mode }) => html`
      ${!mode && html`<div class="trouble" role="alert"><p><${Icon} name="triangle-alert" /> No
        sandbox works: calls are refused.</p></div>`}
      ${trials.map((trial) => html`
        <${Trial} key=${trial.mode} trial=${trial} isUsed=${trial.mode === mode} />`)}
      <h3>The machine</h3>
      <dl class="facts panel">${Object.entries(facts).map(([name, value]) => html`
        <dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`}</${Loaded}>`;
}

function Trial({ trial: { mode, works, reason, layers }, isUsed }) {
  const badge = isUsed ? ["ok", "in use"] : works ? ["info", "works"] : ["quiet", "does not work"];
  return html`
    <details class="panel trial" open=${isUsed}>
      <summary><${Icon} name="chevron-right" /><strong>Mode ${mode}</strong>
        <span class="muted">${reason}</span>
        <${Badge} kind=${badge[0]}>${badge[1]}</${Badge}></summary>
      ${layers.length > 0 && html`<ul class="layers">
        ${layers.map(({ name, stands, detail }) => html`
          <li key=${name} class=${stands ? "" : "lacking"}>
            <${Icon} name=${stands ? "circle-check" : "circle-x"}
              label=${stands ? "stands" : "missing"} />
            <span>${name}</span><span class="muted">${detail}</span></li>`)}</ul>`}
    </details>`;
}
