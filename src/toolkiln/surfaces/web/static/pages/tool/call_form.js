// A form to call the tool, empty or filled from an example of its documentation.
import { api } from "../../api.js";
import { html, useMemo, useState } from "../../lib.js";
import { Button, Empty, Icon } from "../../parts.js";
import { TestCall } from "../../test_call.js";

export function CallForm({ tool, path, examples, missing, onPermissions, onRun }) {
  const [chosen, choose] = useState(null);
  // A version with the same parameters keeps what was typed.
  const shape = useMemo(() => JSON.stringify(tool.parameters), [tool.digest]);
  if (!tool.enabled) {
    return html`<${Empty} icon="power-off" title="This tool is disabled">
      Switch it on above to call it.</${Empty}>`;
  }
  const run = (values, signal) => {
    onRun(values);
    return api.stream("POST", `${path}/call`, { arguments: values }, { signal });
  };
  return html`
    <div class="attempt">
      ${missing > 0 && html`
        <p class="tool-note warn"><${Icon} name="shield-alert" />
          <span>Some requested permissions are not granted, so calls that need them
            fail.</span> <button
            type="button" class="link" onClick=${onPermissions}>Show permissions</button></p>`}
      ${examples.length > 0 && html`
        <div class="row examples"><span class="muted">From the documentation:</span>
          ${examples.map((_, at) => html`
            <${Button} icon="wand-sparkles"
              onClick=${() => choose({ at, turn: (chosen?.turn ?? 0) + 1 })}>
              Fill in ${examples.length > 1 ? `example ${at + 1}` : "the example"}
            </${Button}>`)}</div>`}
      <${TestCall} key=${`${shape} ${chosen?.turn}`} schema=${tool.parameters} run=${run}
        initial=${chosen ? examples[chosen.at] : undefined} submitLabel="Run" />
    </div>`;
}
