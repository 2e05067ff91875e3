// The page "audit".
import { html } from "../lib.js";

export default function Page() {
  return html`<h1>audit</h1>`;
}
