// The page "approvals".
import { html } from "../lib.js";

export default function Page() {
  return html`<h1>approvals</h1>`;
}
