// The page of a tool: documentation, a form to call it, provider schemas, versions and calls.
import { useWho } from "../app.js";
import { api } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { useLive } from "../live.js";
import { Markdown } from "../markdown.js";
import {
  Badge, Busy, DEV, Empty, Icon, Switch, Tabs, Trouble, tabpanel, toast, useRequest,
} from "../parts.js";
import { Link, navigate, useQuery } from "../router.js";
import { CallForm } from "./tool/call_form.js";
import { Calls } from "./tool/calls.js";
import { Health } from "./tool/health.js";
import { Models } from "./tool/models.js";
import { Permissions, requested } from "./tool/permissions.js";
import { Settings, settable } from "./tool/settings.js";
import { Snippets } from "./tool/snippets.js";
import { Versions } from "./tool/versions.js";

const PANEL = "tool-part";

export default function Tool({ name }) {
  const path = `/v1/tools/${encodeURIComponent(name)}`;
  const tool = useRequest((signal) => api.get(path, null, { signal }), [name]);
  const shown = useRequest((signal) => api.get(`${path}/presentation`, null, { signal }), [name]);
  const again = () => {
    tool.again();
    shown.again();
  };
  useLive("again", again);
  useLive("catalog", ({ added, changed, removed }) => {
    if ([...added, ...changed, ...removed].includes(name)) again();
  });

  if (tool.error?.status === 404) return html`<${Missing} name=${name} error=${tool.error} />`;
  if (tool.error && !tool.value) return html`<${Trouble} error=${tool.error} onRetry=${again} />`;
  if (!tool.value) {
    return html`<h1 class="hidden-text">${name}</h1><${Busy} label="Loading tool" />`;
  }
  return html`
    <article class="tool">
      <${Head} tool=${tool.value} color=${shown.value?.color} onChange=${again} />
      <${Parts} tool=${tool.value} path=${path} presentation=${shown} onChange=${again} />
    </article>`;
}

function Missing({ name, error }) {
  const back = html`<${Link} to="/" class="button plain">All tools</${Link}>`;
  return html`
    <h1 class="hidden-text">${name}</h1>
    <${Empty} icon="search-x" title=${`Tool ${name} does not exist`} action=${back}>
      ${error.hint || "It may have been removed or disabled, or you may not see it."}
    </${Empty}>`;
}

function Head({ tool, color, onChange }) {
  const who = useWho();
  const change = async (enabled) => {
    try {
      await api.patch(`/v1/tools/${encodeURIComponent(tool.name)}`, { enabled });
      toast(`${tool.title} is ${enabled ? "enabled" : "disabled"}`);
    } catch (error) {
      toast(error.message, "bad");
    }
    onChange();
  };
  const locked = tool.is_core ? "A core tool cannot be disabled" : undefined;
  const facts = [
    tool.toolkit && `of ${tool.toolkit}`,
    tool.version !== null && `version ${tool.version}`,
    tool.file,
  ].filter(Boolean);
  return html`
    <header class="tool-head">
      <span class="tool-icon" style=${color ? { "--tint": color } : {}}>
        <${Icon} name=${tool.icon ?? "wrench"} /></span>
      <div class="tool-names">
        <h1>${tool.title}</h1>
        <p class="muted"><code>${tool.name}</code>
          ${facts.map((fact) => html` · <span>${fact}</span>`)}</p>
      </div>
      <div class="row">
        ${tool.file !== null && who.may("WRITE_TOOLS") && html`
          <${Link} class="button plain" to=${`/write?tool=${encodeURIComponent(tool.name)}`}>
            <${Icon} name="pencil" />Edit</${Link}>`}
        ${tool.file !== null && who.may("ADMIN") && html`
          <label class="row tool-switch">${tool.enabled ? "Enabled" : "Disabled"}
            <${Switch} checked=${tool.enabled} disabled=${tool.is_core} title=${locked}
              label=${`Enable ${tool.title}`} onChange=${change} /></label>`}
      </div>
    </header>
    <p class="tool-summary">${tool.description.split("\n\n")[0]}</p>
    <div class="row tool-badges">
      ${badges(tool).map((badge) => html`<${Badge} ...${badge} />`)}</div>`;
}

/* Notes to read before calling the tool. */
function badges(tool) {
  const { dev, enabled, is_core, is_shown, hints, rights, role } = tool;
  const all = [
    dev && { kind: "warn", children: "dev", title: DEV },
    role !== "tool"
      && { icon: "file-text", children: role, title: `An MCP ${role}; models call only tools` },
    !enabled && { kind: "warn", icon: "power-off", children: "disabled" },
    is_core && {
      kind: "info", icon: "lock", children: "core",
      title: "Always served; cannot be disabled",
    },
    !is_shown
      && { icon: "eye-off", children: "hidden", title: "It works, but lists omit it by default" },
    hints.read_only && { kind: "ok", icon: "eye", children: "read only" },
    hints.destructive && { kind: "bad", icon: "flame", children: "destructive" },
    hints.idempotent && { icon: "repeat", children: "idempotent" },
    rights.needs_approval && { kind: "warn", icon: "user-check", children: "needs approval" },
    ...requested(tool).map(({ icon, kind, name, isGranted }) => ({
      icon, kind: isGranted ? "quiet" : "warn",
      children: kind === "Workspace" ? `workspace: ${name}` : name,
      title: `${kind}: ${isGranted ? "requested and granted" : "requested, not granted"}`,
    })),
  ];
  return all.filter(Boolean);
}

function Parts({ tool, path, presentation, onChange }) {
  const who = useWho();
  const query = useQuery();
  const findings = presentation.value?.findings ?? [];
  const missing = requested(tool).filter(({ isGranted }) => !isGranted).length;
  const tabs = [
    { id: "try", title: "Try it" },
    { id: "docs", title: "Documentation" },
    tool.role === "tool" && { id: "models", title: "As models see it" },
    { id: "health", title: "Health", count: findings.length || undefined },
    {
      id: "rights", title: settable(tool, who).length ? "Permissions and settings" : "Permissions",
      count: missing || undefined,
    },
    tool.file !== null && { id: "versions", title: "Versions" },
    { id: "calls", title: "Calls" },
    { id: "use", title: "Use it" },
  ].filter(Boolean);
  const current = tabs.find(({ id }) => id === query.get("show"))?.id ?? "try";
  const show = (id) => navigate(
    `/tools/${encodeURIComponent(tool.name)}${id === "try" ? "" : `?show=${id}`}`,
    { replace: true },
  );
  const [used, use] = useState(null);
  // Another version may take other arguments.
  useEffect(() => use(null), [tool.digest]);
  const when = (id, part) => current === id && part();
  return html`
    <${Tabs} tabs=${tabs} current=${current} onChange=${show} label="About this tool"
      panel=${PANEL} />
    <div class="tool-part" ...${tabpanel(PANEL, current)}>
      <div hidden=${current !== "try"}>
        <${CallForm} tool=${tool} path=${path} examples=${presentation.value?.examples ?? []}
          missing=${missing} onPermissions=${() => show("rights")} onRun=${use} />
      </div>
      ${when("docs", () => html`<${Shown} of=${presentation}>${({ page }) => html`
        <${Documentation} page=${page} />`}</${Shown}>`)}
      ${when("models", () => html`<${Shown} of=${presentation}>${({ forms }) => html`
        <${Models} forms=${forms} />`}</${Shown}>`)}
      ${when("health", () => html`<${Shown} of=${presentation}>${() => html`
        <${Health} tool=${tool} findings=${findings} />`}</${Shown}>`)}
      ${when("rights", () => html`<div class="stack narrow">
        <${Permissions} tool=${tool} path=${path} onChange=${onChange} />
        <${Settings} tool=${tool} path=${path} /></div>`)}
      ${when("versions", () => html`
        <${Versions} tool=${tool} path=${path} onChange=${onChange} />`)}
      ${when("calls", () => html`<${Calls} tool=${tool.name} />`)}
      ${when("use", () => html`
        <${Snippets} tool=${tool} used=${used ?? presentation.value?.examples[0]} />`)}
    </div>`;
}

/* Without the first heading, which repeats the title. */
function Documentation({ page }) {
  return html`<div class="panel narrow"><${Markdown} text=${page.replace(/^# .*\n+/, "")} /></div>`;
}

function Shown({ of, children }) {
  if (of.value) return children(of.value);
  if (of.error) return html`<${Trouble} error=${of.error} onRetry=${of.again} />`;
  return html`<${Busy} />`;
}
