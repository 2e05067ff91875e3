// The version of Toolkiln, and links to the documentation.
import { html } from "../../lib.js";
import { Icon } from "../../parts.js";
import { Loaded, useResponse } from "./shared.js";

const LICENCES = new URL("../../vendor/LICENSES.txt", import.meta.url);
const LINKS = [
  {
    to: "/docs", icon: "book-open", title: "The HTTP API",
    words: "every operation, with a form to try it",
  },
  { to: "/openapi.json", icon: "braces", title: "openapi.json", words: "the same for programs" },
  { to: "/healthz", icon: "heart-pulse", title: "Health", words: "whether the server responds" },
  { to: "/readyz", icon: "activity", title: "Readiness", words: "whether calls would run" },
];

export function About() {
  const request = useResponse("/openapi.json");
  return html`
    <div class="panel stack">
      <${Loaded} request=${request} label="Loading version">${({ info }) => html`
        <p>Toolkiln <strong>${info.version}</strong></p>`}</${Loaded}>
      <ul class="plain-list">${LINKS.map(({ to, icon, title, words }) => html`
        <li key=${to}><${Icon} name=${icon} /> <a href=${to}>${title}</a>: <span class="muted">
          ${words}</span></li>`)}
      </ul>
      <p class="hint">The manual is in <code>docs/</code> beside the source: rules and keys
        in <code>security.md</code>, serving in <code>serving.md</code>, the sandbox
        in <code>sandbox.md</code>. The command <code>toolkiln --help</code> lists all commands.</p>
      <p class="hint">What the page takes from
        others has <a href=${LICENCES}>licences of its own</a>.</p>
    </div>`;
}
