// The page "login".
import { html } from "../lib.js";

export default function Page() {
  return html`<h1>login</h1>`;
}
