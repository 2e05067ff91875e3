// A note above the editor.
import { html } from "../../lib.js";
import { Icon } from "../../parts.js";

export function Note({ kind, icon, hint, children }) {
  return html`
    <div class=${`notice ${kind}`} role="status">
      <p><${Icon} name=${icon} /> <span>${children}</span></p>
      ${hint && html`<p class="hint">${hint.charAt(0).toUpperCase() + hint.slice(1)}</p>`}
    </div>`;
}

/* The reason why the user may not do something, in one sentence. */
export function reason(permission) {
  return permission.reason.replace(/^permission denied: /, "");
}
