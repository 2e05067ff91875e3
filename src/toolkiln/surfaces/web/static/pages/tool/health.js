// The health of a tool's schema, and the findings in its source.
import { useWho } from "../../app.js";
import { html } from "../../lib.js";
import { Badge, Icon, sentence } from "../../parts.js";
import { Link } from "../../router.js";

const KINDS = { error: "bad", warning: "warn", info: "info" };

const LEVELS = {
  STRICT_COMPLIANT: ["ok", "Providers can enforce every parameter, also in strict mode"],
  NON_STRICT_ONLY: ["warn", "Strict modes cannot express some parameters exactly"],
  INVALID: ["bad", "Providers cannot enforce these parameters"],
};

export function Health({ tool, findings }) {
  const [kind, words] = LEVELS[tool.health.level];
  return html`
    <div class="stack narrow">
      <section class="panel stack">
        <div class="row"><h2>Parameters</h2>
          <${Badge} kind=${kind}>${tool.health.level}</${Badge}></div>
        <p>${words}.</p>
        ${tool.health.points.length > 0 && html`
          <ul>${tool.health.points.map(({ path, reason }) => html`
            <li><code>${path || "/"}</code> ${reason}</li>`)}</ul>`}
      </section>
      <section class="stack">
        <h2>Findings</h2>
        ${findings.length === 0 && html`
          <p class="muted"><${Icon} name="circle-check" /> The check has nothing to say about this
            tool.</p>`}
        ${findings.map((finding) => html`<${Finding} finding=${finding} tool=${tool} />`)}
      </section>
    </div>`;
}

function Finding({ finding: { rule, severity, message, line, fix }, tool }) {
  const who = useWho();
  return html`
    <div class="panel finding">
      <div class="row"><${Badge} kind=${KINDS[severity] ?? "quiet"}>${severity}</${Badge}>
        <code>${rule}</code><span class="muted">line ${line}</span></div>
      <p>${sentence(message)}</p>
      ${fix && html`<p class="hint"><${Icon} name="lightbulb" /> ${sentence(fix)}</p>`}
      ${tool.file !== null && who.may("WRITE_TOOLS") && html`
        <${Link} to=${`/write?tool=${encodeURIComponent(tool.name)}`}>Fix it</${Link}>`}
    </div>`;
}
