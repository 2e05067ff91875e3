// Line differences between two texts, computed or parsed from a unified diff.
import { html, useMemo, useState } from "./lib.js";
import { Shown } from "./result/text.js";

const CONTEXT = 3;
const MOST_COMPARED = 4e6;
const MARKS = { same: " ", added: "+", removed: "−" };

/* Rows of {kind: same | added | removed | file | note | fold, old, now, text}. */
export function Diff({ before = "", after = "", unified, label = "Changes" }) {
  const rows = useMemo(
    () => (unified === undefined ? folded(compared(before, after)) : parsed(unified)),
    [before, after, unified],
  );
  const [open, setOpen] = useState(new Set());
  if (!rows.length) return html`<p class="muted">No differences.</p>`;
  const show = (row) => setOpen(new Set(open).add(row));
  return html`
    <div class="diff scrolled" tabindex="0" role="region" aria-label=${label}>
      <table><tbody>${rows.flatMap((row) => (open.has(row) ? row.rows : [row])).map((row) => html`
        <${Row} row=${row} onOpen=${show} />`)}</tbody></table>
    </div>`;
}

function Row({ row, onOpen }) {
  const { kind, old, now, text } = row;
  if (kind === "file") {
    return html`<tr class="file"><th colspan="4"><${Shown} text=${text} /></th></tr>`;
  }
  if (kind === "note") return html`<tr class="note"><td colspan="4">${text}</td></tr>`;
  if (kind === "fold") {
    return html`<tr class="note"><td colspan="4">
      <button type="button" onClick=${() => onOpen(row)}>
        ${row.rows.length} ${row.rows.length === 1 ? "line" : "lines"} that did not change</button>
    </td></tr>`;
  }
  return html`
    <tr class=${kind}>
      <td class="number">${old}</td><td class="number">${now}</td>
      <td class="mark">${MARKS[kind]}
        ${kind !== "same" && html`<span class="hidden-text">${kind}</span>`}</td>
      <td class="text"><${Shown} text=${text} /></td>
    </tr>`;
}

/* Parse a unified diff of the server: each file begins with a line `diff …`. */
function parsed(unified) {
  const rows = [];
  let old = 0;
  let now = 0;
  let names = 0;
  for (const line of unified.replace(/\n$/, "").split("\n")) {
    const [mark, text] = [line[0], line.slice(1)];
    const hunk = names ? null : line.match(/^@@ -(\d+),(\d+) \+(\d+),(\d+) @@/);
    if (line.startsWith("diff ")) {
      rows.push({ kind: "file", text: line.replace(/^diff a\/.* b\//, "") });
      names = 2;
    } else if (names) {
      names -= 1;
    } else if (hunk) {
      [old, now] = [Number(hunk[1]), Number(hunk[3])];
      if (old > 1 && now > 1) rows.push({ kind: "note", text: `⋯ line ${now}` });
    } else if (mark === "+") {
      rows.push({ kind: "added", old: "", now: now++, text });
    } else if (mark === "-") {
      rows.push({ kind: "removed", old: old++, now: "", text });
    } else if (mark === " ") {
      rows.push({ kind: "same", old: old++, now: now++, text });
    } else if (line) {
      rows.push({ kind: "note", text: mark === "\\" ? text.trim() : line });
    }
  }
  return rows;
}

/* Compare all lines of two texts. */
function compared(before, after) {
  const [a, b] = [lines(before), lines(after)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const rows = [];
  let [i, j] = [0, 0];
  const same = () => rows.push({ kind: "same", text: a[i], old: ++i, now: ++j });
  const removed = () => rows.push({ kind: "removed", text: a[i], old: ++i, now: "" });
  const added = () => rows.push({ kind: "added", text: b[j], old: "", now: ++j });
  while (i < start) same();
  const [aEnd, bEnd] = [a.length - end, b.length - end];
  const found = longest(a.slice(start, aEnd), b.slice(start, bEnd));
  const common = found && ((x, y) => found(x - start, y - start));
  while (i < aEnd || j < bEnd) {
    if (common && i < aEnd && j < bEnd && a[i] === b[j]) same();
    else if (j === bEnd) removed();
    else if (i === aEnd) added();
    else if (!common || common(i + 1, j) >= common(i, j + 1)) removed();
    else added();
  }
  while (i < a.length) same();
  return rows;
}

function lines(text) {
  return text ? text.replace(/\r\n?/g, "\n").replace(/\n$/, "").split("\n") : [];
}

/* The number of lines that the rests of two lists have in common; null if that takes too long. */
function longest(a, b) {
  const width = b.length + 1;
  if (a.length * b.length > MOST_COMPARED) return null;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      lengths[at] = a[i] === b[j]
        ? lengths[at + width + 1] + 1 : Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  return (i, j) => lengths[i * width + j];
}

/* The same rows, with those far from any change folded; none if nothing changed. */
function folded(rows) {
  const near = new Set();
  rows.forEach(({ kind }, at) => {
    if (kind === "same") return;
    for (let i = at - CONTEXT; i <= at + CONTEXT; i++) near.add(i);
  });
  if (!near.size) return [];
  const found = [];
  rows.forEach((row, at) => {
    if (near.has(at)) found.push(row);
    else if (found.at(-1)?.kind === "fold") found.at(-1).rows.push(row);
    else found.push({ kind: "fold", rows: [row] });
  });
  return found;
}
