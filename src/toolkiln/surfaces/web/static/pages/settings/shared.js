// Shared parts of the settings: paged lists, tables, times and sizes.
import { api } from "../../api.js";
import { html, useEffect, useState } from "../../lib.js";
import { useLive } from "../../live.js";
import { Badge, Busy, Button, Dialog, Trouble, useRequest } from "../../parts.js";

const PART = 200;
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const UNITS = [["day", 86_400], ["hour", 3600], ["minute", 60]];

/* A paged list of the API: {items, hasMore, more, again, error, busy}. */
export function useList(path) {
  const [cursors, setCursors] = useState([undefined]);
  const [parts, setParts] = useState([]);
  const last = cursors.length - 1;
  const { value, error, busy, again } = useRequest(
    async (signal) => {
      const part = await api.get(path, { limit: PART, cursor: cursors[last] }, { signal });
      return { at: last, ...part };
    },
    [path, last],
  );
  useEffect(() => {
    if (value) setParts((before) => [...before.slice(0, value.at), value]);
  }, [value]);
  const reload = () => {
    if (last > 0) setCursors([undefined]);
    else again();
  };
  useLive("again", reload);
  const next = parts[last]?.next_cursor;
  return {
    items: parts.length ? parts.flatMap(({ items }) => items) : undefined,
    hasMore: Boolean(next), more: () => setCursors([...cursors, next]), again: reload, error, busy,
  };
}

/* A response of the API, requested again when the server is back. */
export function useResponse(path) {
  const request = useRequest((signal) => api.get(path, {}, { signal }), [path]);
  useLive("again", request.again);
  return request;
}

/* Render a response once it has arrived; before that, a placeholder or the error. */
export function Loaded({ request, label, children }) {
  const { value, error, again } = request;
  if (error && !value) return html`<${Trouble} error=${error} onRetry=${again} />`;
  return value ? children(value) : html`<${Busy} label=${label} />`;
}

/* A table; on a narrow screen each row becomes a block of names and values, so
   the roles are explicit: browsers drop them otherwise. */
export function Table({ label, columns, rows, id = (row) => row.id }) {
  return html`
    <table class="rows" role="table" aria-label=${label}>
      <thead role="rowgroup"><tr role="row">${columns.map(({ title }) => html`
        <th role="columnheader" scope="col">
          ${title || html`<span class="hidden-text">Actions</span>`}</th>`)}</tr></thead>
      <tbody role="rowgroup">${rows.map((row) => html`
        <tr role="row" key=${id(row)}>${columns.map(({ title, cell }) => html`
          <td role="cell" data-title=${title}><div>${cell(row)}</div></td>`)}</tr>`)}</tbody>
    </table>`;
}

/* Ask the user to confirm. */
export function Confirm({ title, action, children, onConfirm, onClose }) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const confirm = async () => {
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <div class="stack">
        <div>${children}</div>
        ${error && html`<${Trouble} error=${error} />`}
        <div class="row end">
          <${Button} onClick=${onClose}>Cancel</${Button}>
          <${Button} kind="danger" busy=${isBusy} onClick=${confirm}>${action}</${Button}>
        </div>
      </div>
    </${Dialog}>`;
}

export function Names({ names, none = "none" }) {
  if (!names.length) return html`<span class="muted">${none}</span>`;
  return html`<span class="row names">${names.map((name) => html`
    <${Badge} key=${name}>${name}</${Badge}>`)}</span>`;
}

/* A day; its tooltip shows the time. */
export function Day({ at }) {
  const date = new Date(at * 1000);
  return html`
    <time datetime=${date.toISOString()} title=${date.toLocaleString()}>${DAY.format(date)}</time>`;
}

/* A span of time in its largest unit. */
export function span(seconds) {
  const [unit, size] = UNITS.find(([, least]) => seconds >= least) ?? ["second", 1];
  const format = { style: "unit", unit, unitDisplay: "long", maximumFractionDigits: 0 };
  return new Intl.NumberFormat(undefined, format).format(Math.floor(seconds / size));
}

export function size(bytes) {
  const [unit, many] = bytes >= 1e9 ? ["gigabyte", 1e9] : ["megabyte", 1e6];
  const format = { style: "unit", unit, maximumFractionDigits: 1 };
  return new Intl.NumberFormat(undefined, format).format(bytes / many);
}
