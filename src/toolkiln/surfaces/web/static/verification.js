// Whether the audit is as it was written, and the head to keep elsewhere.
import { api } from "./api.js";
import { html, useEffect, useState } from "./lib.js";
import { Button, Copy, Field, Icon, Trouble } from "./parts.js";

const READ_AT_ONCE = 20_000;
const HEAD = /^[0-9]{1,18}:[0-9a-f]{64}$/;

/* `newest` is the number of the last record: a short log is verified without being asked to. */
export function Verification({ newest }) {
  const [state, setState] = useState({ busy: false });
  const [head, setHead] = useState("");
  const [isOpen, setOpen] = useState(false);
  const isHead = HEAD.test(head.trim());
  const verify = async (known) => {
    setState((before) => ({ ...before, busy: true }));
    try {
      const found = await api.get("/v1/audit/verify", { head: known });
      setState({ busy: false, found, known });
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  const isShort = newest !== undefined && newest <= READ_AT_ONCE;
  useEffect(() => {
    if (isShort && !state.found) verify();
  }, [isShort]);
  return html`
    <section class="panel verification" aria-label="Verification">
      <div class="row">
        <${Verdict} state=${state} />
        <span class="grow"></span>
        <${Button} icon="shield-check" busy=${state.busy} onClick=${() => verify()}>Verify</${Button}>
        <${Button} kind="quiet" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>With a head kept elsewhere</${Button}>
      </div>
      ${state.found?.head && html`<p class="head"><span class="muted">Head</span>
        <code>${`${state.found.last}:${state.found.head}`}</code>
        <${Copy} text=${`${state.found.last}:${state.found.head}`} label="Copy the head" /></p>`}
      ${state.found?.problems.length > 0 && html`<ul>${state.found.problems.map((one) => html`<li>${one}</li>`)}</ul>`}
      ${state.error && html`<${Trouble} error=${state.error} />`}
      ${isOpen && html`
        <form class="row" onSubmit=${(event) => { event.preventDefault(); if (isHead) verify(head.trim()); }}>
          <${Field} label="Head that you noted" problem=${head && !isHead ? "It is a number, a colon and 64 hex digits" : ""}
            hint="Keep the head outside this machine: it shows if somebody puts an older copy of the whole log back.">
            ${(given) => html`<input ...${given} value=${head} spellcheck=${false} size="80"
              onInput=${(event) => setHead(event.target.value)} />`}</${Field}>
          <${Button} type="submit" disabled=${!isHead} busy=${state.busy}>Verify with it</${Button}>
        </form>`}
    </section>`;
}

function Verdict({ state: { busy, found, known } }) {
  if (busy) return html`<span role="status"><${Icon} name="loader" /> Reading the whole log…</span>`;
  if (!found) return html`<span role="status" class="muted">Not verified since this page was opened</span>`;
  if (!found.ok) {
    return html`<strong role="status" class="bad"><${Icon} name="shield-alert" /> Records were changed, or are missing</strong>`;
  }
  const count = found.count === 1 ? "The one record is" : `All ${found.count.toLocaleString()} records are`;
  return html`<strong role="status" class="ok"><${Icon} name="shield-check" /> ${count} as written${known && ", and continue the head that you gave"}</strong>`;
}
