// A list of flat objects as a table, sortable by column; only visible rows exist.
import { comparable, isNumber, isObject, write } from "../form/json.js";
import { html, useMemo, useRef, useState } from "../lib.js";
import { Shown } from "./text.js";

const ROW = 30; // pixels, as in result.css
const HEIGHT = 14; // visible rows
const MOST_COLUMNS = 50;
const MOST_CHARACTERS = 200;
const SAMPLE = 200;
// Locale-aware sorting of more rows takes too long.
const MOST_COLLATED = 20_000;

/* The columns of a value that fits a table, else null. */
export function columnsOf(value) {
  if (!Array.isArray(value) || !value.length || !value.every(isObject)) return null;
  const names = new Set();
  for (const row of value) {
    for (const [name, cell] of Object.entries(row)) {
      if (Array.isArray(cell) || isObject(cell)) return null;
      names.add(name);
    }
    if (names.size > MOST_COLUMNS) return null;
  }
  return names.size ? [...names] : null;
}

export function Table({ rows, columns }) {
  const [order, setOrder] = useState({ column: null, isDown: false });
  const [top, setTop] = useState(0);
  const box = useRef(null);
  const sorted = useMemo(
    () => (order.column === null ? rows : sortedBy(rows, order)),
    [rows, order],
  );
  const widths = useMemo(() => columns.map((name) => widthOf(rows, name)), [rows, columns]);
  const areNumbers = useMemo(() => columns.map((name) => hasNumbers(rows, name)), [rows, columns]);
  const first = Math.max(0, Math.floor(top / ROW) - 5);
  const last = Math.min(sorted.length, first + HEIGHT + 10);
  const sort = (column) => {
    box.current.scrollTop = 0;
    setOrder({ column, isDown: order.column === column && !order.isDown });
  };
  const direction = (name) =>
    order.column !== name ? undefined : order.isDown ? "descending" : "ascending";
  return html`
    <div class="table-box" ref=${box} tabindex="0" role="region" aria-label="Table"
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
      <table aria-rowcount=${sorted.length + 1}
        style=${{ width: `${widths.reduce((a, b) => a + b, 0)}ch` }}>
        <colgroup>
          ${widths.map((width) => html`<col style=${{ width: `${width}ch` }} />`)}</colgroup>
        <thead><tr>${columns.map(
          (name, at) => html`
          <th scope="col" class=${areNumbers[at] ? "number" : undefined}
            aria-sort=${direction(name)}>
            <button type="button" onClick=${() => sort(name)}><${Shown} text=${name} />
              <span aria-hidden="true">
                ${{ ascending: " ↑", descending: " ↓" }[direction(name)] ?? ""}</span></button>
          </th>`,
        )}</tr></thead>
        <tbody>
          <${Space} rows=${first} columns=${columns.length} />
          ${sorted.slice(first, last).map(
            (row, at) => html`
            <tr key=${first + at} aria-rowindex=${first + at + 2}>${columns.map(
              (name, place) => html`
              <${Cell} row=${row} name=${name} isOfNumbers=${areNumbers[place]} />`,
            )}</tr>`,
          )}
          <${Space} rows=${sorted.length - last} columns=${columns.length} />
        </tbody>
      </table>
    </div>
    <p class="hint">${rows.length.toLocaleString()} ${rows.length === 1 ? "row" : "rows"}</p>`;
}

function Space({ rows, columns }) {
  if (rows <= 0) return null;
  return html`<tr aria-hidden="true" class="space">
    <td colspan=${columns} style=${{ height: `${rows * ROW}px` }}></td></tr>`;
}

function Cell({ row, name, isOfNumbers }) {
  if (!Object.hasOwn(row, name))
    return html`<td><span class="muted" title="missing">–</span></td>`;
  const text = textOf(row[name]);
  const cut = text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)}…` : text;
  const kind = [isOfNumbers && "number", row[name] === null && "muted"].filter(Boolean).join(" ");
  return html`<td class=${kind || undefined} title=${cut.length > 30 ? cut : undefined}>
    <${Shown} text=${cut} /></td>`;
}

function textOf(value) {
  return typeof value === "string" ? value : write(value, 0);
}

function hasNumbers(rows, name) {
  const cells = rows.slice(0, SAMPLE).map((row) => (Object.hasOwn(row, name) ? row[name] : null));
  return cells.some(isNumber) && cells.every((cell) => cell === null || isNumber(cell));
}

function widthOf(rows, name) {
  const lengths = rows
    .slice(0, SAMPLE)
    .map((row) => (Object.hasOwn(row, name) ? textOf(row[name]).length : 1));
  return Math.min(40, Math.max(6, name.length + 2, ...lengths)) + 3;
}

/* Numbers first, then text, then null and missing values. */
function sortedBy(rows, { column, isDown }) {
  const collator = new Intl.Collator(undefined, { numeric: true });
  const compare =
    rows.length > MOST_COLLATED ? (a, b) => (a < b ? -1 : a > b ? 1 : 0) : collator.compare;
  const keyed = rows.map((row) => {
    const cell = Object.hasOwn(row, column) ? row[column] : null;
    if (cell === null) return { row, rank: 2 };
    return isNumber(cell)
      ? { row, rank: 0, key: comparable(cell) }
      : { row, rank: 1, key: textOf(cell) };
  });
  const turn = isDown ? -1 : 1;
  keyed.sort((a, b) => {
    if (a.rank !== b.rank)
      return a.rank === 2 || b.rank === 2 ? a.rank - b.rank : turn * (a.rank - b.rank);
    if (a.rank === 2) return 0;
    return (
      turn * (a.rank === 0 ? (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) : compare(a.key, b.key))
    );
  });
  return keyed.map(({ row }) => row);
}
