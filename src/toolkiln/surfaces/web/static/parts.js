// Components shared by all pages.
import { html, useCallback, useEffect, useId, useLayoutEffect, useRef, useState } from "./lib.js";

export function Icon({ name, label }) {
  const named = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return html`<svg class="icon" viewBox="0 0 24 24" ...${named}>
    <use href=${`/ui/icons/${encodeURIComponent(name)}.svg#icon`} /></svg>`;
}

export function Button({
  kind = "plain", icon, busy = false, disabled, type = "button", children, ...rest
}) {
  return html`
    <button type=${type} class=${`button ${kind}`} disabled=${disabled || busy} aria-busy=${busy}
      ...${rest}>
      ${icon && html`<${Icon} name=${busy ? "loader" : icon} />`}${children}
    </button>`;
}

/* The title of the badge "dev". */
export const DEV = "Served from disk: this version is not admitted";

export function Badge({ kind = "quiet", icon, title, children }) {
  return html`<span class=${`badge ${kind}`} title=${title}>
    ${icon && html`<${Icon} name=${icon} />`}${children}</span>`;
}

export function Switch({ checked, disabled, label, title, onChange }) {
  return html`<input type="checkbox" role="switch" class="switch" checked=${checked}
    disabled=${disabled} aria-label=${label} title=${title}
    onChange=${(event) => onChange(event.target.checked)} />`;
}

/* Scroll a row sideways until one of its elements is visible. */
export function reveal(row, which) {
  const outer = row.getBoundingClientRect();
  const inner = row.querySelector(which)?.getBoundingClientRect() ?? outer;
  row.scrollLeft += Math.max(0, inner.right - outer.right) - Math.max(0, outer.left - inner.left);
}

/* A row of tabs. The caller renders the content of the current one: with `panel`, the id of its
   element, `tabpanel` returns the attributes of that element. */
export function Tabs({ tabs, current, onChange, label, panel }) {
  const row = useRef(null);
  useLayoutEffect(() => reveal(row.current, "[aria-selected=true]"), [current]);
  const move = (event) => {
    const place = tabs.findIndex(({ id }) => id === current);
    const last = tabs.length - 1;
    const next = {
      ArrowRight: place < last ? place + 1 : 0,
      ArrowLeft: place > 0 ? place - 1 : last,
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    onChange(tabs[next].id);
    row.current.children[next].focus();
  };
  return html`
    <div class="tabs" role="tablist" aria-label=${label} ref=${row} onKeyDown=${move}>
      ${tabs.map(({ id, title, count }) => html`
        <button type="button" role="tab" aria-selected=${id === current}
          id=${panel && `${panel}-${id}`} aria-controls=${panel}
          tabindex=${id === current ? 0 : -1} onClick=${() => onChange(id)}>
          ${title}${count !== undefined && html` <span class="count quiet">${count}</span>`}
        </button>`)}
    </div>`;
}

/* The attributes of a tab panel. */
export function tabpanel(panel, current) {
  return { id: panel, role: "tabpanel", "aria-labelledby": `${panel}-${current}` };
}

export function Dialog({ title, onClose, children }) {
  const dialog = useRef(null);
  const name = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  const close = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`
    <dialog ref=${dialog} class="dialog" aria-labelledby=${name} onCancel=${close}>
      <header><h2 id=${name}>${title}</h2>
        <button type="button" class="button quiet" aria-label="Close" onClick=${onClose}>
          <${Icon} name="x" /></button></header>
      ${children}
    </dialog>`;
}

/* A label with its control, hint and problem: children receive the attributes for the control. */
export function Field({ label, hint, problem, children }) {
  const id = useId();
  const about = [hint && `${id}-hint`, problem && `${id}-problem`].filter(Boolean).join(" ");
  const attributes = {
    id, "aria-describedby": about || undefined, "aria-invalid": problem ? "true" : undefined,
  };
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${typeof children === "function" ? children(attributes) : children}
      ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
      ${problem && html`<p class="problem" id=${`${id}-problem`}>${problem}</p>`}
    </div>`;
}

export function Empty({ icon = "inbox", title, children, action }) {
  return html`<div class="empty"><${Icon} name=${icon} /><h2>${title}</h2>
    <div>${children}</div>${action}</div>`;
}

/* An error message with its hint. */
/* Shown instead of content the user may not see: the required privilege, and where to get it. */
export function Locked({ title, privilege }) {
  return html`
    <${Empty} icon="lock" title=${title}>An operator can give you the privilege
      ${" "}<code>${privilege}</code>, under <code>[privileges]</code> in
      ${" "}<code>toolkiln.toml</code>, or a key that has it.</${Empty}>`;
}

export function Trouble({ error, onRetry }) {
  return html`
    <div class="trouble" role="alert">
      <p><${Icon} name="triangle-alert" /> ${sentence(error.message)}</p>
      ${error.hint && html`<p class="hint">${sentence(error.hint)}</p>`}
      ${error.errors?.length > 0 && html`<ul>${error.errors.map(({ place, message }) => html`
        <li>${place && html`<code>${place}</code> `}${message}</li>`)}</ul>`}
      ${onRetry && html`<${Button} icon="rotate-cw" onClick=${onRetry}>Try again</${Button}>`}
    </div>`;
}

/* Capitalize the first letter. */
export function sentence(text) {
  const said = String(text ?? "");
  return said.charAt(0).toUpperCase() + said.slice(1);
}

export function Busy({ label = "Loading" }) {
  return html`<p class="busy" role="status"><${Icon} name="loader" />${label}…</p>`;
}

const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function Time({ at }) {
  if (at === null || at === undefined) return "–";
  const date = new Date(at * 1000);
  return html`<time datetime=${date.toISOString()}>${WHEN.format(date)}</time>`;
}

export function Duration({ seconds }) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/* A button that copies a text, or the result of a function if the text is expensive to build. */
export function Copy({ text, label = "Copy" }) {
  const copy = async () => {
    // Browsers deny the clipboard to pages loaded over plain HTTP from another machine.
    if (!isSecureContext) return toast("Copying needs HTTPS: select the text instead", "bad");
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
    toast("Copied");
  };
  return html`
    <${Button} kind="quiet" icon="copy" onClick=${copy} aria-label=${label} title=${label} />`;
}

/* A virtual list: only visible rows exist, and all have the same height. */
export function Virtual({ items, height, render, label, className = "" }) {
  const box = useRef(null);
  const [range, setRange] = useState([0, 50]);
  const look = useCallback(() => {
    const { top } = box.current.getBoundingClientRect();
    const first = Math.max(0, Math.floor(-top / height) - 10);
    const last = Math.ceil((innerHeight - top) / height) + 10;
    setRange((now) => (now[0] === first && now[1] === last ? now : [first, last]));
  }, [height]);
  useEffect(() => {
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [look, items.length]);
  const [first, last] = range;
  return html`
    <ul ref=${box} class=${`virtual ${className}`} aria-label=${label}
      style=${{ height: `${items.length * height}px` }}>
      ${items.slice(first, last).map((item, index) => html`
        <li key=${item.key ?? first + index} aria-setsize=${items.length}
          aria-posinset=${first + index + 1}
          style=${{
            height: `${height}px`, transform: `translateY(${(first + index) * height}px)`,
          }}>
          ${render(item, first + index)}</li>`)}
    </ul>`;
}

/* Request something, again when the dependencies change or `again` is called. */
export function useRequest(ask, dependencies) {
  const [state, setState] = useState({ busy: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    setState((before) => ({ ...before, busy: true }));
    ask(control.signal).then(
      (value) => control.signal.aborted || setState({ value, busy: false }),
      (error) => control.signal.aborted
        || setState((before) => ({ value: before.value, error, busy: false })),
    );
    return () => control.abort();
  }, [...dependencies, turn]);
  const again = useCallback(() => setTurn((now) => now + 1), []);
  return { ...state, again };
}

const TOAST_MS = 5000;
const toasts = new EventTarget();
let lastToast = 0;

/* Show a message for a few seconds. */
export function toast(text, kind = "info") {
  toasts.dispatchEvent(new CustomEvent("toast", { detail: { text, kind, id: ++lastToast } }));
}

export function Toasts() {
  const [shown, setShown] = useState([]);
  useEffect(() => {
    const add = ({ detail }) => {
      setShown((now) => [...now, detail]);
      setTimeout(() => setShown((now) => now.filter(({ id }) => id !== detail.id)), TOAST_MS);
    };
    toasts.addEventListener("toast", add);
    return () => toasts.removeEventListener("toast", add);
  }, []);
  return html`<div class="toasts" role="status">${shown.map(({ id, text, kind }) => html`
    <p key=${id} class=${`toast ${kind}`}>${text}</p>`)}</div>`;
}
