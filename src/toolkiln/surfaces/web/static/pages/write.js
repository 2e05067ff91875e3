// The page "write".
import { html } from "../lib.js";

export default function Page() {
  return html`<h1>write</h1>`;
}
