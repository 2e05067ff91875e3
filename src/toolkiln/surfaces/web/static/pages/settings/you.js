// The current user, their privileges, and signing out.
import { useWho } from "../../app.js";
import { api } from "../../api.js";
import { html, useState } from "../../lib.js";
import { Button, toast } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { PRIVILEGES } from "./privileges.js";
import { Names } from "./shared.js";

export function You() {
  const who = useWho();
  return html`
    <div class="panel stack">
      <dl class="facts">
        <dt>User</dt><dd><strong><${Shown} text=${who.user} /></strong></dd>
        <dt>Groups</dt><dd><${Names} names=${who.groups} /></dd>
        <dt>Tools</dt><dd>${isAll(who.tools)
          ? "all tools that the rules allow" : html`<${Names} names=${who.tools} />`}</dd>
        <dt>Session</dt><dd><code>${who.trace_id}</code></dd>
        <dt>Signed in with</dt><dd>${signedInWith(who)}</dd>
      </dl>
      ${who.kind !== "anonymous" && html`<${LogOut} />`}
    </div>
    <h3>Your permissions</h3>
    <dl class="facts panel">
      <dt>all callers</dt>
      <dd>${who.kind === "anonymous"
        ? "Run the tools that the rules allow."
        : "Run the tools that the rules allow, and see your own calls."}</dd>
      ${Object.entries(PRIVILEGES).filter(([name]) => who.may(name)).map(([name, words]) => html`
        <dt key=${name}><code>${name}</code></dt><dd>${words}</dd>`)}
    </dl>`;
}

function signedInWith({ kind, key_id }) {
  if (kind === "key") return html`the API key <code>${key_id}</code>`;
  if (kind === "local") return "the sign-in link from the server’s terminal";
  return kind === "anonymous" ? "nothing: you are not signed in" : "a session token";
}

function LogOut() {
  const [isBusy, setBusy] = useState(false);
  const leave = async () => {
    setBusy(true);
    try {
      await api.post("/ui/logout");
      location.assign("/ui/"); // a full reload: nothing of this page's state is left
    } catch (error) {
      toast(`You are still signed in: ${error.message}`, "bad");
      setBusy(false);
    }
  };
  return html`
    <div><${Button} icon="log-out" busy=${isBusy} onClick=${leave}>Sign out</${Button}></div>`;
}

function isAll(tools) {
  return tools.length === 1 && tools[0] === "*";
}
