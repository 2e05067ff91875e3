// The findings of a source, as a list of links to their lines.
import { html } from "../../lib.js";
import { Button, Icon } from "../../parts.js";

const ICONS = { error: "circle-x", warning: "triangle-alert", info: "info" };
const REPAIRS = {
  "missing-annotation": "Add a type",
  "missing-docstring": "Add a docstring",
  "undescribed-parameter": "Add a description",
  "unlisted-import": "Add the requirement",
};
const MOST = 100;

export function Findings({ findings, onGo, onRepair }) {
  return html`
    <ul class="findings" aria-label="Findings">
      ${findings.slice(0, MOST).map((one) => html`
        <li class=${one.severity} key=${`${one.rule} ${one.line} ${one.message}`}>
          <${Icon} name=${ICONS[one.severity]} label=${one.severity} />
          <div>
            <button type="button" class="link" onClick=${() => onGo(one)}>Line ${one.line}</button>
            ${" "}${coded(one.message)} <code class="muted">${one.rule}</code>
            ${one.fix && html`<p class="hint">${coded(one.fix)}</p>`}
          </div>
          ${one.repair && html`<${Button} icon="wand-sparkles" onClick=${() => onRepair(one)}>
            ${REPAIRS[one.rule] ?? "Insert"}</${Button}>`}
        </li>`)}
      ${findings.length > MOST && html`<li class="muted">${findings.length - MOST} more</li>`}
    </ul>`;
}

/* Text with backquoted parts as code. */
function coded(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
}

/* The number of findings by severity, as text. */
export function counted(findings) {
  const count = (severity, word) => {
    const found = findings.filter((one) => one.severity === severity).length;
    return found && `${found} ${word}${found > 1 ? "s" : ""}`;
  };
  const counts = [count("error", "error"), count("warning", "warning"), count("info", "note")]
    .filter(Boolean);
  return counts.join(", ") || "No findings";
}
