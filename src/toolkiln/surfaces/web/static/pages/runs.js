// Running and ended calls, and the details of one.
import { html } from "../lib.js";
import { RunDetail } from "./runs/detail.js";
import { RunList } from "./runs/list.js";

export default function Runs({ name }) {
  return name === undefined ? html`<${RunList} />` : html`<${RunDetail} id=${name} />`;
}
