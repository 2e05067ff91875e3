// The operator's rules in order, and their effect for a user and a tool.
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Badge, Button, Empty, Field, Icon, Trouble, useRequest } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Loaded, useResponse } from "./shared.js";

const EFFECTS = {
  allow: { kind: "ok", icon: "circle-check", words: "may run", more: "" },
  ask: {
    kind: "warn", icon: "circle-help", words: "may run",
    more: ", once a person approves the call",
  },
  deny: { kind: "bad", icon: "ban", words: "may not run", more: "" },
};
const OFFERED = 200;

export function Rules() {
  const rules = useResponse("/v1/rules");
  return html`
    <p class="muted">The first matching rule decides. Rules are in <code>toolkiln.toml</code> and
      take effect when you save the file.</p>
    <${Explain} />
    <h3>Rules in order</h3>
    <${Loaded} request=${rules} label="Loading rules">${({ items, policy }) => html`
      ${items.length === 0 && html`<${Empty} icon="scale" title="No rules">
        Every call is decided by <code>policy = "${policy}"</code>. Write rules
        as <code>[[rules]]</code> in <code>toolkiln.toml</code>.</${Empty}>`}
      ${items.length > 0 && html`<ol class="rules panel">
        ${items.map((rule) => html`<${Rule} key=${rule.place} rule=${rule} />`)}
        <li><span class="place">–</span><${Effect} effect=${policy} />
          <span>calls that no rule matches</span></li>
      </ol>`}`}</${Loaded}>`;
}

function Rule({ rule: { place, effect, conditions, reason, approve_own, shadowed_by } }) {
  return html`
    <li><span class="place">${place}</span><${Effect} effect=${effect} />
      <div>
        ${conditions ? html`<code><${Shown} text=${conditions} /></code>`
          : "every caller, every tool"}
        ${reason && html`<p class="hint"><${Shown} text=${reason} /></p>`}
        ${approve_own && html`<p class="hint">Callers may approve their own calls.</p>`}
        ${approve_own === false && html`
          <p class="hint">Callers may not approve their own calls.</p>`}
        ${shadowed_by && html`<p class="never"><${Icon} name="triangle-alert" /> It never decides:
          rule ${shadowed_by} matches every call that it matches.</p>`}</div></li>`;
}

function Effect({ effect }) {
  const { kind, icon } = EFFECTS[effect];
  return html`<${Badge} kind=${kind} icon=${icon}>${effect}</${Badge}>`;
}

function Explain() {
  const tools = useRequest(
    (signal) => api.get("/v1/tools", { limit: OFFERED, all: true }, { signal }), [],
  );
  const [answer, setAnswer] = useState({});
  const ask = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const query = new URLSearchParams({
      tool: given.get("tool").trim(), user: given.get("user").trim(),
    });
    for (const group of given.get("groups").split(",")) {
      if (group.trim()) query.append("group", group.trim());
    }
    try {
      setAnswer({ value: await api.get(`/v1/rules/explain?${query}`) });
    } catch (error) {
      setAnswer({ error });
    }
  };
  const field = (name, label, control) => html`
    <${Field} label=${label}>${(attributes) => html`
      <input ...${attributes} name=${name} maxlength="200" autocomplete="off"
        ...${control} />`}</${Field}>`;
  return html`
    <div class="panel stack">
      <h3>Who may run what?</h3>
      <form class="explain" onSubmit=${ask}>
        ${field("user", "User", { required: true })}
        ${field("groups", "Groups", { placeholder: "staff, night" })}
        ${field("tool", "Tool", { required: true, list: "known-tools" })}
        <datalist id="known-tools">${tools.value?.items.map(({ name }) => html`
          <option value=${name} />`)}</datalist>
        <${Button} kind="primary" type="submit" icon="scale">Explain</${Button}>
      </form>
      <div role="status">
        ${answer.error && html`<${Trouble} error=${answer.error} />`}
        ${answer.value && html`<${Explanation} explained=${answer.value} />`}
      </div>
    </div>`;
}

function Explanation({ explained: { effect, why, rule, text, user, tool, approvals, needs } }) {
  const isAsked = effect === "allow" && approvals.length > 0;
  const { kind, icon, words, more } = EFFECTS[isAsked ? "ask" : effect];
  return html`
    <div class=${`explanation ${kind}`}>
      <p class="verdict"><${Icon} name=${icon} />
        <span><strong><${Shown} text=${user} /></strong> ${words} <strong>
          <${Shown} text=${tool} /></strong>${more}.</span></p>
      <p>${rule
        ? html`Rule ${rule} decides: <code><${Shown} text=${text} /></code>`
        : html`<${Shown} text=${sentence(why)} />`}</p>
      ${(approvals.length > 0 || needs.length > 0) && html`<ul class="plain-list marked">
        ${approvals.map((who) => html`<li key=${who}><${Icon} name="user" /><span>Approval is
          required by <${Shown} text=${who} />.</span></li>`)}
        ${needs.map(({ what, there }) => html`<li key=${what} class=${there ? "" : "lacking"}>
          <${Icon} name=${there ? "check" : "x"} />
          <span>${there ? "The call has" : "The call lacks"} <${Shown} text=${what} />.</span>
        </li>`)}
      </ul>`}
    </div>`;
}

function sentence(text) {
  const said = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(said) ? said : `${said}.`;
}
