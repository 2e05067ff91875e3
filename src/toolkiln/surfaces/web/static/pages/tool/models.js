// The schema of a tool for each provider, and its losses.
import { html, useState } from "../../lib.js";
import { Badge, Copy, Icon } from "../../parts.js";
import { Tree } from "../../result/tree.js";

export function Models({ forms }) {
  const [chosen, choose] = useState(forms[0].provider);
  const form = forms.find(({ provider }) => provider === chosen);
  return html`
    <div class="stack">
      <div class="chips" role="group" aria-label="Provider">
        ${forms.map((each) => html`
          <button type="button" class="chip" aria-pressed=${each.provider === chosen}
            onClick=${() => choose(each.provider)}>
            ${each.provider} <${Mark} form=${each} /></button>`)}
      </div>
      <${Form} form=${form} />
    </div>`;
}

function Mark({ form: { left_out, losses } }) {
  if (left_out.length) {
    return html`<span class="refused"><${Icon} name="circle-x" label="refused" /></span>`;
  }
  if (losses.length) {
    const label = `${losses.length} lost`;
    return html`<span class="lost"><${Icon} name="triangle-alert" label=${label} /></span>`;
  }
  return html`<${Icon} name="check" label="no losses" />`;
}

function Form({ form: { provider, tool, losses, left_out } }) {
  return html`
    ${left_out.length > 0 && html`
      <div class="trouble">
        <p><${Icon} name="circle-x" /> ${provider} would refuse this tool, so it is left out</p>
        <ul>${left_out.map((reason) => html`<li>${reason}</li>`)}</ul></div>`}
    ${losses.length > 0 && html`
      <section class="panel stack">
        <h2>What ${provider} does not hold a model to</h2>
        <p class="hint">Toolkiln still checks these constraints for every call.</p>
        <div class="scrolled" tabindex="0" role="region" aria-label="Losses"><table>
          <thead><tr><th scope="col">Where</th><th scope="col">What</th>
            <th scope="col">Why</th></tr></thead>
          <tbody>${losses.map(({ path, keyword, reason }) => html`
            <tr><td><code>${path || "/"}</code></td><td><code>${keyword}</code></td>
              <td>${reason}</td></tr>`)}</tbody>
        </table></div>
      </section>`}
    ${tool && html`
      <section class="panel">
        <div class="row sent"><h2>Payload</h2>
          ${!losses.length && html`<${Badge} kind="ok" icon="check">no losses</${Badge}>`}
          <span class="grow"></span>
          <${Copy} text=${JSON.stringify(tool, null, 2)} label="Copy JSON" /></div>
        <${Tree} value=${tool} />
      </section>`}`;
}
