// Markdown of tool pages, rendered as elements: HTML in it is shown as
// text.
import { html } from "./lib.js";

export function Markdown({ text }) {
  const lines = String(text ?? "").replaceAll("\r\n", "\n").split("\n");
  return html`<div class="markdown">${blocks(lines)}</div>`;
}

const FENCE = /^\s*(```+|~~~+)\s*(\S*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/;
const ROW = /^\s*\|(.*)\|\s*$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;

function blocks(lines) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const [block, next] = block_at(lines, at);
    if (block) found.push(block);
    at = next;
  }
  return found;
}

function block_at(lines, at) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  if (FENCE.test(line)) return code(lines, at);
  const heading = line.match(HEADING);
  if (heading) {
    // The page has its own title, so these headings start one level below.
    const level = `h${Math.min(6, heading[1].length + 1)}`;
    return [html`<${level}>${inline(heading[2])}</${level}>`, at + 1];
  }
  if (RULE.test(line)) return [html`<hr />`, at + 1];
  if (line.startsWith(">")) return quote(lines, at);
  if (ITEM.test(line)) return list(lines, at);
  if (ROW.test(line) && /^[\s|:-]+$/.test(lines[at + 1] ?? "")) return table(lines, at);
  return paragraph(lines, at);
}

function code(lines, at) {
  const [, fence] = lines[at].match(FENCE);
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) end += 1;
  const source = lines.slice(at + 1, end).join("\n");
  return [html`<pre tabindex="0"><code>${source}</code></pre>`, end + 1];
}

function quote(lines, at) {
  let end = at;
  while (end < lines.length && lines[end].startsWith(">")) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^> ?/, ""));
  return [html`<blockquote>${blocks(inner)}</blockquote>`, end];
}

function list(lines, at) {
  const [, indent, mark] = lines[at].match(ITEM);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = lines[end].match(ITEM);
    if (item && item[1].length <= indent.length) {
      if (item[1].length < indent.length) break;
      items.push([item[3]]);
    } else if (items.length && (/^\s{2,}\S/.test(lines[end]) || item)) {
      items.at(-1).push(lines[end].replace(/^\s{2,4}/, ""));
    } else if (!lines[end].trim() && /^\s{2,}\S/.test(lines[end + 1] ?? "")) {
      items.at(-1).push("");
    } else break;
    end += 1;
  }
  const name = /\d/.test(mark) ? "ol" : "ul";
  const shown = items.map((each) => html`
    <li>${each.length > 1 ? loose(each) : inline(each[0])}</li>`);
  return [html`<${name}>${shown}</${name}>`, end];
}

/* An item of several lines: the first one is beside its bullet. */
function loose([first, ...rest]) {
  return [inline(first), ...blocks(rest)];
}

function table(lines, at) {
  const cells = (line) => line.match(ROW)[1].split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
  let end = at + 2;
  while (end < lines.length && ROW.test(lines[end])) end += 1;
  const rows = lines.slice(at + 2, end).map(cells);
  return [html`
    <div class="scrolled" tabindex="0" role="region" aria-label="Table"><table>
      <thead><tr>${cells(lines[at]).map((cell) => html`
        <th scope="col">${inline(cell)}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`
        <tr>${row.map((cell) => html`<td>${inline(cell)}</td>`)}</tr>`)}</tbody>
    </table></div>`, end];
}

function paragraph(lines, at) {
  let end = at + 1;
  const isOther = (line) => [FENCE, HEADING, ITEM, ROW, RULE].some((kind) => kind.test(line));
  const goesOn = (line) => line?.trim() && !isOther(line);
  while (end < lines.length && goesOn(lines[end])) end += 1;
  return [html`<p>${inline(lines.slice(at, end).join("\n"))}</p>`, end];
}

const INLINE = new RegExp([
  /(`+)([\s\S]*?[^`])\1(?!`)/, // code
  /\*\*([^*]+)\*\*/, // strong
  /(?<![\w*])\*([^*\s][^*]*)\*/, /(?<!\w)_([^_]+)_(?!\w)/, // emphasis
  /\[([^\]]+)\]\(([^()\s]+)\)/, // a link
  /\\([\\`*_{}[\]()#+.!|-])/, // an escaped character
].map(({ source }) => source).join("|"));

function inline(text) {
  const parts = [];
  let rest = text;
  while (rest) {
    const found = rest.match(INLINE);
    if (!found) break;
    parts.push(rest.slice(0, found.index), span(found));
    rest = rest.slice(found.index + found[0].length);
  }
  return [...parts, rest];
}

function span([whole, , code, strong, star, under, label, target, escaped]) {
  if (code !== undefined) return html`<code>${code.trim() || code}</code>`;
  if (strong !== undefined) return html`<strong>${inline(strong)}</strong>`;
  if (star ?? under) return html`<em>${inline(star ?? under)}</em>`;
  if (escaped !== undefined) return escaped;
  // Anything but these could run something, or lead back into this page.
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return whole;
  return html`<a href=${target} rel="noreferrer noopener" target="_blank">${inline(label)}</a>`;
}
