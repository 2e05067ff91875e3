// Sign in with an API key; the server keeps the session in a cookie that no script can read.
import { api } from "../api.js";
import { html, useState } from "../lib.js";
import { Button, Copy, Field, Icon } from "../parts.js";
import { navigate, useQuery } from "../router.js";

const COMMAND = "toolkiln keys create page --user NAME";

export default function Login() {
  const query = useQuery();
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);

  const logIn = async (event) => {
    event.preventDefault();
    const form = event.target;
    setProblem("");
    setBusy(true);
    try {
      await api.post("/ui/login", { key: form.elements.key.value.trim() });
      const known = new Promise((go) => addEventListener("toolkiln:known", go, { once: true }));
      dispatchEvent(new Event("toolkiln:login"));
      await known; // otherwise the next page would show the previous user
      navigate(after(query.get("to")), { replace: true });
    } catch (error) {
      setProblem(words(error));
      setBusy(false);
      form.elements.key.select();
    }
  };

  return html`
    <form class="panel stack login" onSubmit=${logIn}>
      <h1><${Icon} name="key-round" /> Sign in</h1>
      ${query.get("link") === "refused" && html`
        <p class="refused-link" role="alert">This sign-in link was used before or is not valid. Each
          link works once: open the newest one that the server printed in its terminal, restart the
          server, or use an API key.</p>`}
      <p>On the server’s machine, open the sign-in link that the server printed in its terminal.
        Elsewhere, sign in with an API key.</p>
      <${Field} label="API key" problem=${problem}>${(attributes) => html`
        <input ...${attributes} name="key" type="password" required maxlength="200" autofocus
          autocomplete="current-password" spellcheck="false" placeholder="tk_…" />`}
      </${Field}>
      <${Button} kind="primary" type="submit" icon="log-in" busy=${isBusy}>Sign in</${Button}>
      <div class="hint stack">
        <p>The operator creates a key; with <code>--privilege ADMIN</code> it can administer,
          too:</p>
        <p class="row command"><code>${COMMAND}</code>
          <${Copy} text=${COMMAND} label="Copy command" /></p>
        <p>You stay signed in for eight hours, or until the key expires.</p>
        <p><button type="button" class="as-link" onClick=${goOn}>Continue without signing
          in</button>, if the server allows it.</p>
      </div>
    </form>`;
}

/* Drop a session that has ended; if callers need a credential, the page redirects here. */
async function goOn() {
  await api.post("/ui/logout").catch(() => {});
  location.assign("/ui/");
}

/* The page requested before signing in. */
function after(to) {
  return to?.startsWith("/") && !to.startsWith("/login") ? to : "/";
}

function words({ status, message }) {
  if (status === 401) return "This key is unknown, revoked or expired.";
  if (status === 429) return "Too many wrong keys. Wait a moment and try again.";
  return `You cannot sign in: ${message}.`;
}
