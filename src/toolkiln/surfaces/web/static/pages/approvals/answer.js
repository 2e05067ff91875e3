// Shared parts of decisions on calls and on proposed tools.
import { html, useLayoutEffect, useRef, useState } from "../../lib.js";
import { Button, Duration, Field, Icon } from "../../parts.js";
import { Shown } from "../../result/text.js";
import { Link } from "../../router.js";

/* Send a decision once: a second press, or one while another request runs, does nothing. */
export function useResponse(item, onEnd) {
  const [state, setState] = useState({ busy: false });
  const isBusy = useRef(false);
  const answer = async (ask) => {
    if (isBusy.current || item.ended) return;
    isBusy.current = true;
    setState({ busy: true });
    try {
      onEnd(item, await ask());
      setState({ busy: false });
    } catch (error) {
      setState({ busy: false, error });
    } finally {
      isBusy.current = false;
    }
  };
  return { ...state, answer };
}

export function Head({ icon, title, to }) {
  const name = html`<${Shown} text=${title} />`;
  return html`<h2 class="row"><${Icon} name=${icon} />
    ${to ? html`<${Link} to=${to}>${name}</${Link}>` : name}</h2>`;
}

/* The decision, or the buttons to make it. */
export function Verdict({ ended, children }) {
  if (!ended) return html`<div class="verdict stack">${children}</div>`;
  return html`<p class="verdict done" role="status"><${Icon} name="circle-check" /> ${ended}.</p>`;
}

/* The reason for either decision; `isWanted` while the user is about to reject. */
export function Reason({ value, onChange, isWanted, kept, onDone, onCancel }) {
  const input = useRef(null);
  // Immediately: the next key press belongs to it.
  useLayoutEffect(() => { if (isWanted) input.current.focus(); }, [isWanted]);
  const press = (event) => {
    if (!isWanted || event.isComposing) return;
    if (event.key === "Enter") onDone();
    if (event.key === "Escape") onCancel();
  };
  const label = isWanted ? `Reason for rejecting (${kept})` : "Reason (optional)";
  return html`<${Field} label=${label}>${(given) => html`
    <input ...${given} ref=${input} maxlength="2000" value=${value} onKeyDown=${press}
      onInput=${(event) => onChange(event.target.value)} />`}</${Field}>`;
}

export function Rejecting({ busy, onReject, onCancel }) {
  return html`
    <${Button} kind="danger" icon="x" busy=${busy} onClick=${onReject}>Reject</${Button}>
    <${Button} onClick=${onCancel}>Cancel</${Button}>`;
}

/* The remaining time of a pending call. */
export function Left({ until, ended }) {
  const seconds = Math.round(until - Date.now() / 1000);
  if (ended || seconds <= 0) return null;
  return html`<span class=${seconds < 60 ? "left soon" : "left"}
    > · <${Duration} seconds=${seconds} /> left</span>`;
}
