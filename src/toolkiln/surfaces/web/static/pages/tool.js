// One tool: what it does, trying it, what models see of it, its versions and calls.
import { useWho } from "../app.js";
import { api } from "../api.js";
import { html, useState } from "../lib.js";
import { useLive } from "../live.js";
import { Markdown } from "../markdown.js";
import { Badge, Busy, Empty, Icon, Switch, Tabs, Trouble, toast, useAsked } from "../parts.js";
import { Link, navigate, useQuery } from "../router.js";
import { Trying } from "../trying.js";
import { Calls } from "./tool/calls.js";
import { Health } from "./tool/health.js";
import { Models } from "./tool/models.js";
import { Snippets } from "./tool/snippets.js";
import { Versions } from "./tool/versions.js";

export default function Tool({ name }) {
  const path = `/v1/tools/${encodeURIComponent(name)}`;
  const tool = useAsked((signal) => api.get(path, null, { signal }), [name]);
  const shown = useAsked((signal) => api.get(`${path}/presentation`, null, { signal }), [name]);
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
  if (!tool.value) return html`<${Busy} label="Reading the tool" />`;
  return html`
    <article class="tool">
      <${Head} tool=${tool.value} onChange=${again} />
      <${Parts} tool=${tool.value} path=${path} presentation=${shown} onChange=${again} />
    </article>`;
}

function Missing({ name, error }) {
  const back = html`<${Link} to="/" class="button plain">All tools</${Link}>`;
  return html`
    <h1 class="hidden-text">${name}</h1>
    <${Empty} icon="search-x" title=${`There is no tool ${name}`} action=${back}>
      ${error.hint || "It may have been removed, switched off, or be meant for others."}
    </${Empty}>`;
}

function Head({ tool, onChange }) {
  const who = useWho();
  const change = async (enabled) => {
    try {
      await api.patch(`/v1/tools/${encodeURIComponent(tool.name)}`, { enabled });
      toast(`${tool.title} is switched ${enabled ? "on" : "off"}`);
    } catch (error) {
      toast(error.message, "bad");
    }
    onChange();
  };
  const locked = tool.is_core ? "A core tool cannot be switched off" : undefined;
  return html`
    <header class="page-head tool-head">
      <span class="tool-icon" style=${{ color: tool.color ?? "" }}><${Icon} name=${tool.icon ?? "wrench"} /></span>
      <div class="grow">
        <h1>${tool.title}</h1>
        <p class="muted"><code>${tool.name}</code>${tool.toolkit && ` of ${tool.toolkit}`}
          ${tool.version !== null && ` · version ${tool.version}`}${tool.file && ` · ${tool.file}`}</p>
      </div>
      ${tool.version !== null && who.may("WRITE_TOOLS") && html`
        <${Link} class="button plain" to=${`/write?tool=${encodeURIComponent(tool.name)}`}>
          <${Icon} name="pencil" />Edit</${Link}>`}
      ${tool.version !== null && who.may("ADMIN") && html`
        <label class="row">${tool.enabled ? "On" : "Off"}
          <${Switch} checked=${tool.enabled} disabled=${tool.is_core} title=${locked}
            label=${`Serve ${tool.title}`} onChange=${change} /></label>`}
    </header>
    <p class="tool-summary">${tool.description}</p>
    <div class="row tool-badges">${badges(tool).map((badge) => html`<${Badge} ...${badge} />`)}</div>`;
}

/* What is worth knowing before it is called. */
function badges({ enabled, is_core, is_shown, hints, rights, role }) {
  const all = [
    role !== "tool" && { icon: "file-text", children: role, title: `A ${role} of MCP; models call tools only` },
    !enabled && { kind: "warn", icon: "power-off", children: "switched off" },
    is_core && { kind: "info", icon: "lock", children: "core", title: "Always offered, and never switched off" },
    !is_shown && { icon: "eye-off", children: "hidden", title: "Works, and is not listed for people" },
    hints.read_only && { kind: "ok", icon: "eye", children: "read only" },
    hints.destructive && { kind: "bad", icon: "flame", children: "destructive" },
    hints.idempotent && { icon: "repeat", children: "may be repeated" },
    rights.sandbox === false && { kind: "warn", icon: "shield-off", children: "no sandbox" },
    rights.network?.length > 0 && { kind: "warn", icon: "globe", children: rights.network.join(", "), title: "Hosts that it asks for" },
    rights.secrets?.length > 0 && { kind: "warn", icon: "key-round", children: rights.secrets.join(", "), title: "Secrets that it asks for" },
    rights.workspace && { kind: "warn", icon: "folder", children: `workspace: ${rights.workspace}` },
    rights.needs_approval && { kind: "warn", icon: "user-check", children: "asks a person" },
  ];
  return all.filter(Boolean);
}

function Parts({ tool, path, presentation, onChange }) {
  const query = useQuery();
  const [current, setCurrent] = useState(query.get("show") ?? "try");
  const show = (id) => {
    setCurrent(id);
    navigate(`/tools/${encodeURIComponent(tool.name)}${id === "try" ? "" : `?show=${id}`}`, { replace: true });
  };
  const findings = presentation.value?.findings ?? [];
  const tabs = [
    { id: "try", title: "Try it" },
    { id: "docs", title: "Documentation" },
    { id: "models", title: "As models see it" },
    { id: "health", title: "Health", count: findings.length || undefined },
    tool.version !== null && { id: "versions", title: "Versions" },
    { id: "calls", title: "Calls" },
    { id: "use", title: "Use it" },
  ].filter(Boolean);
  return html`
    <${Tabs} tabs=${tabs} current=${current} onChange=${show} label="About this tool" />
    <div class="tool-part">
      ${current === "try" && html`<${TryIt} tool=${tool} path=${path} />`}
      ${current === "docs" && html`<${Shown} of=${presentation}>${({ page }) => html`<${Documentation} page=${page} />`}</${Shown}>`}
      ${current === "models" && html`<${Shown} of=${presentation}>${({ forms }) => html`<${Models} forms=${forms} />`}</${Shown}>`}
      ${current === "health" && html`<${Health} tool=${tool} findings=${findings} />`}
      ${current === "versions" && html`<${Versions} tool=${tool} path=${path} onChange=${onChange} />`}
      ${current === "calls" && html`<${Calls} tool=${tool.name} />`}
      ${current === "use" && html`<${Snippets} tool=${tool} />`}
    </div>`;
}

function TryIt({ tool, path }) {
  if (!tool.enabled) {
    return html`<${Empty} icon="power-off" title="It is switched off">Switch it on above to call it.</${Empty}>`;
  }
  const run = (values, signal) => api.stream("POST", `${path}/call`, { arguments: values }, { signal });
  return html`<${Trying} key=${tool.digest} schema=${tool.parameters} run=${run} submitLabel="Run" />`;
}

/* The first heading of a page is the title that stands above already. */
function Documentation({ page }) {
  return html`<div class="panel"><${Markdown} text=${page.replace(/^# .*\n+/, "")} /></div>`;
}

function Shown({ of, children }) {
  if (of.value) return children(of.value);
  if (of.error) return html`<${Trouble} error=${of.error} onRetry=${of.again} />`;
  return html`<${Busy} />`;
}
