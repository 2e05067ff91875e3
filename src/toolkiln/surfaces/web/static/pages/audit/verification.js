// Verification of the audit log, and its head to keep elsewhere.
import { api } from "../../api.js";
import { html, useEffect, useState } from "../../lib.js";
import { Button, Copy, Field, Icon, Trouble } from "../../parts.js";

const READ_AT_ONCE = 20_000;
const WHY = "Store the head on another machine: with it you can detect if an older copy of the " +
  "whole log was restored.";
const HEAD = /^[0-9]{1,18}:[0-9a-f]{64}$/;

/* `newest` is the number of the last record: a short log is verified automatically. */
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
  const submit = (event) => {
    event.preventDefault();
    if (isHead) verify(head.trim());
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
        <${Button} icon="shield-check" busy=${state.busy} onClick=${() => verify()}>
          Verify</${Button}>
        <${Button} kind="quiet" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
          Verify with a stored head</${Button}>
      </div>
      ${state.found?.head && html`<${Head} text=${`${state.found.last}:${state.found.head}`} />`}
      ${state.found?.problems.length > 0 && html`
        <ul>${state.found.problems.map((one) => html`<li>${one}</li>`)}</ul>`}
      ${state.error && html`<${Trouble} error=${state.error} />`}
      ${isOpen && html`
        <form class="row" onSubmit=${submit}>
          <${Field} label="Stored head" hint=${WHY}
            problem=${head && !isHead && "Enter a number, a colon and 64 hex digits"}>
            ${(given) => html`<input ...${given} value=${head} spellcheck=${false} size="80"
              onInput=${(event) => setHead(event.target.value)} />`}</${Field}>
          <${Button} type="submit" disabled=${!isHead} busy=${state.busy}>
        Verify with this head</${Button}>
        </form>`}
    </section>`;
}

function Head({ text }) {
  return html`<p class="head"><span class="muted">Head</span><code>${text}</code>
    <${Copy} text=${text} label="Copy head" /></p>`;
}

function Verdict({ state: { busy, found, known } }) {
  const said = (kind, icon, words) => html`
    <strong role="status" class=${kind}><${Icon} name=${icon} /> ${words}</strong>`;
  if (busy) return said("muted", "loader", "Verifying the whole log…");
  if (!found) return said("muted", "shield", "Not verified yet");
  if (!found.ok) return said("bad", "shield-alert", "Records were changed or are missing");
  const count = found.count.toLocaleString();
  const all = found.count === 1 ? "The only record is" : `All ${count} records are`;
  const more = known ? ", and match the stored head" : "";
  return said("ok", "shield-check", `${all} intact${more}`);
}
