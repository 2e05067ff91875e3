// Cards of tools and headings of toolkits, as the catalog shows them.
import { html } from "../../lib.js";
import { Badge, DEV, Icon, Switch } from "../../parts.js";
import { Link } from "../../router.js";

const PERCENT = new Intl.NumberFormat(undefined, { style: "percent" });
const PARTS = { lexical: "words", semantic: "meaning", clause: "part", name: "name" };
const CORE = "Core tool: it cannot be disabled";

/* why: the search's explanation, if any; onSwitch: null if the user may not switch. */
export function ToolCard({ tool, why, isFresh, isBusy, onSwitch }) {
  const isOff = tool.state === "disabled";
  // A tool that is not admitted has no page yet.
  const to = tool.state === "proposed" ? "/approvals" : `/tools/${encodeURIComponent(tool.name)}`;
  return html`
    <article class=${`card ${isOff ? "off" : ""} ${isFresh ? "fresh" : ""}`}>
      <header>
        <${Tile} icon=${tool.icon ?? "wrench"} color=${tool.color} />
        <h3><${Link} to=${to}>${tool.title}</${Link}>
          <code title=${tool.name}>${tool.name}</code></h3>
        ${onSwitch && tool.state !== "proposed" && html`
          <${Switch} checked=${!isOff} disabled=${tool.is_core || isBusy}
            label=${`Enable ${tool.name}${tool.is_core ? ": core, always enabled" : ""}`}
            title=${tool.is_core ? CORE : isOff ? "Enable tool" : "Disable tool"}
            onChange=${onSwitch} />`}
      </header>
      <p class="summary" title=${tool.summary}>${tool.summary}</p>
      ${why && html`<${Why} why=${why} />`}
      <footer>
        ${tool.dev && html`<${Badge} kind="warn" title=${DEV}>dev</${Badge}>`}
        <${Badges} tool=${tool} /></footer>
    </article>`;
}

function Tile({ icon, color }) {
  const tint = color ? { "--tint": color } : {};
  return html`<span class="tile" style=${tint}><${Icon} name=${icon} /></span>`;
}

/* What is to be known of a tool, most important first: each with its kind, icon, word and
   meaning. */
function traits({ rights, state, ...tool }) {
  const isStrict = tool.health === "STRICT_COMPLIANT";
  const isInvalid = tool.health === "INVALID";
  return [
    state === "disabled" && ["quiet", "power-off", "Disabled", "Disabled: calls are rejected"],
    state === "proposed" && ["info", "hourglass", "Proposed", "A person has to admit it"],
    state !== "proposed" && tool.has_proposal
      && ["info", "hourglass", "New version", "A person has to admit another version"],
    !rights.sandbox && ["bad", "shield-off", "No sandbox", "Requests to run without the sandbox"],
    rights.needs_approval && ["warn", "hand", "Needs approval", "A person approves each call"],
    isInvalid
      && ["bad", "shield-x", "Invalid", "Its parameters are not a valid schema for models"],
    !isStrict && !isInvalid && [
      "warn", "shield-question-mark", "Not strict",
      "Strict modes send part of its parameters as text",
    ],
    tool.is_core && ["quiet", "lock", "Core", CORE],
    !tool.is_shown
      && ["quiet", "eye-off", "Hidden", "It works, but lists omit it by default"],
    tool.role === "prompt" && [
      "quiet", "message-square-quote", "Prompt",
      "A person chooses it, and a model reads its text",
    ],
    tool.role === "resource"
      && ["quiet", "file-symlink", "Resource", "Clients read it by its address"],
    rights.network.length > 0
      && ["quiet", "globe", "", `Requests network: ${rights.network.join(", ")}`],
    rights.secrets.length > 0
      && ["quiet", "key-round", "", `Requests secrets: ${rights.secrets.join(", ")}`],
    rights.workspace && ["quiet", "folder", "", `Requests to ${rights.workspace} the workspace`],
    tool.read_only && ["quiet", "eye", "", "Declares that it changes nothing"],
    isStrict && ["ok", "shield-check", "", "Providers can enforce its parameters"],
  ].filter(Boolean);
}

/* The most important traits as text, as many as fit; icons for the others. */
function Badges({ tool }) {
  const all = traits(tool);
  const room = all.length > 5 ? 1 : 2;
  const worded = all.slice(0, room).filter(([, , word]) => word);
  return html`
    ${worded.map(([kind, icon, word, meaning]) => html`
      <${Badge} key=${icon} kind=${kind} icon=${icon} title=${meaning}>${word}</${Badge}>`)}
    <span class="marks">${all.slice(worded.length).map(([kind, icon, word, meaning]) => html`
      <${Mark} key=${icon} kind=${kind} icon=${icon}
        text=${word ? `${word}: ${meaning}` : meaning} />`)}</span>`;
}

function Mark({ icon, kind, text }) {
  return html`
    <span class=${`mark ${kind}`} title=${text}><${Icon} name=${icon} label=${text} /></span>`;
}

/* Why a tool was found: the words that it has, what each way of looking adds, the part it
   answers. */
function Why({ why }) {
  const total = Object.values(why.parts).reduce((sum, part) => sum + part, 0);
  const shares = Object.entries(why.parts).sort(([, one], [, other]) => other - one)
    .map(([part, value]) => `${PARTS[part] ?? part} ${PERCENT.format(value / (total || 1))}`);
  const rest = [why.text, why.clause && `for “${why.clause}”`, ...shares]
    .filter(Boolean).join(" · ");
  return html`
    <p class="why" title=${`Matched ${[...why.words, rest].join(" · ")}`}>
      <span class="hidden-text">Matched </span>
      ${why.words.map((word) => html`<mark key=${word}>${word}</mark>`)}<span>${rest}</span></p>`;
}

/* core: the name of a core tool in it; then the toolkit cannot be disabled as a whole. */
export function ToolkitHead({ kit, items, core, isBusy, onSwitch }) {
  const on = items.filter(({ state }) => state === "served").length;
  const locked = kit?.is_core ? CORE
    : core && `${core} is core: disable the others one by one`;
  return html`
    ${kit && html`<${Tile} icon=${kit.icon ?? "toolbox"} color=${kit.color} />`}
    <h2>${kit ? kit.title : "Single tools"}</h2>
    ${kit && html`<p title=${kit.description}>${kit.description}</p>`}
    <span class="muted number">
      ${on === items.length ? `${on.toLocaleString()}` : `${on} of ${items.length} on`}</span>
    ${kit?.is_core && html`<${Badge} icon="lock" title=${CORE}>Core</${Badge}>`}
    ${kit && onSwitch && html`
      <${Switch} checked=${kit.enabled} disabled=${Boolean(locked) || isBusy}
        label=${`Enable all of ${kit.title}`}
        title=${locked || (kit.enabled ? "Disable all" : "Enable all")}
        onChange=${onSwitch} />`}`;
}
