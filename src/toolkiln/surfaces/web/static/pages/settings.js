// The page "settings".
import { html } from "../lib.js";

export default function Page() {
  return html`<h1>settings</h1>`;
}
