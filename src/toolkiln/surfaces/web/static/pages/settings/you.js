// On whose behalf the page asks, with which rights, and the way out.
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
          ? "all that the rules allow" : html`<${Names} names=${who.tools} />`}</dd>
        <dt>Session</dt><dd><code>${who.trace_id}</code></dd>
        <dt>Known by</dt><dd>${who.key_id
          ? html`the key <code>${who.key_id}</code>` : "being on the server’s machine"}</dd>
      </dl>
      ${who.key_id ? html`<${LogOut} />` : html`
        <p class="hint">Nobody had to log in: whoever reaches this server from its own machine acts
          for the account that runs it. With <code>require_key = true</code> everybody needs a
          key.</p>`}
    </div>
    <h3>What you may</h3>
    <dl class="facts panel">
      <dt>everybody</dt>
      <dd>Run the tools that the rules allow, and see what becomes of your own calls.</dd>
      ${Object.entries(PRIVILEGES).filter(([name]) => who.may(name)).map(([name, words]) => html`
        <dt key=${name}><code>${name}</code></dt><dd>${words}</dd>`)}
    </dl>`;
}

function LogOut() {
  const [isBusy, setBusy] = useState(false);
  const leave = async () => {
    setBusy(true);
    try {
      await api.post("/ui/logout");
      location.assign("/ui/"); // a new page: nothing that this one knows is left
    } catch (error) {
      toast(`You are still logged in: ${error.message}`, "bad");
      setBusy(false);
    }
  };
  return html`
    <div><${Button} icon="log-out" busy=${isBusy} onClick=${leave}>Log out</${Button}></div>`;
}

function isAll(tools) {
  return tools.length === 1 && tools[0] === "*";
}
