// What calls do: those that run, those that ended, and one of them in detail.
import { html } from "../lib.js";
import { RunDetail } from "./runs/detail.js";
import { RunList } from "./runs/list.js";

export default function Runs({ name }) {
  return name === undefined ? html`<${RunList} />` : html`<${RunDetail} id=${name} />`;
}
