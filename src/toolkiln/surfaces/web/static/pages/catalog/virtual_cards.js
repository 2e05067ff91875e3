// A virtual list of cards in rows under headings: only visible ones exist.
import {
  html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from "../../lib.js";

const AHEAD = 2; // rows beyond the visible ones, so that Tab always finds the next card
const GAP = 12;
const NARROWEST = 272;
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/* groups: [{key, head?, items: [{name, …}]}]; heights in pixels; card(item), head(group) render.
   Arrow keys lead from card to card; `first` gets a function that moves there. */
export function VirtualCards({ groups, cardHeight, headHeight, card, head, label, first }) {
  const box = useRef(null);
  const wanted = useRef(null);
  const [columns, setColumns] = useState(1);
  const [range, setRange] = useState([0, 0]);
  const [focused, setFocused] = useState(-1);
  const { rows, height, count } = useMemo(
    () => laidOut(groups, columns, cardHeight, headHeight),
    [groups, columns, cardHeight, headHeight],
  );

  const look = useCallback(() => {
    if (!box.current) return;
    const { top, width } = box.current.getBoundingClientRect();
    setColumns(Math.max(1, Math.floor((width + GAP) / (NARROWEST + GAP))));
    const begin = Math.max(0, rowAt(rows, -top) - AHEAD);
    const end = Math.min(rows.length, rowAt(rows, innerHeight - top) + 1 + AHEAD);
    setRange((now) => (now[0] === begin && now[1] === end ? now : [begin, end]));
  }, [rows]);

  useLayoutEffect(() => {
    look();
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      observer.disconnect();
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [look]);

  const go = useCallback((place) => {
    const row = rows.findIndex((one) =>
      one.items && place >= one.first && place < one.first + one.items.length);
    if (row < 0) return;
    wanted.current = place;
    setFocused(row);
    arrive();
  }, [rows]);

  /* Focus the requested card as soon as it exists. */
  const arrive = () => {
    const item = wanted.current !== null
      && box.current.querySelector(`[data-place="${wanted.current}"]`);
    if (!item) return;
    wanted.current = null;
    item.querySelector("a").focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  };
  useEffect(arrive);

  if (first) first.current = () => go(0);

  const press = (event) => {
    const from = event.target.closest("[data-place]");
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    const place = next(rows, Number(from.dataset.place), event.key, count);
    if (place === null) return;
    event.preventDefault();
    go(place);
  };
  const enter = (event) => {
    const row = event.target.closest("[data-row]");
    if (row) setFocused(Number(row.dataset.row));
  };

  const shown = [];
  // Until the next update, the range may still be that of a longer list.
  for (let row = range[0]; row < Math.min(range[1], rows.length); row += 1) shown.push(row);
  // The focused card keeps the focus while the page scrolls.
  if (focused >= 0 && focused < rows.length && !shown.includes(focused)) shown.push(focused);
  shown.sort((one, other) => one - other);
  return html`
    <div class="shelf" ref=${box} role="list" aria-label=${label} style=${{ height: `${height}px` }}
      onKeyDown=${press} onFocusIn=${enter} onFocusOut=${() => setFocused(-1)}>
      ${shown.map((place) => drawn(rows[place], place, { columns, count, card, head }))}
    </div>`;
}

function drawn(row, place, { columns, count, card, head }) {
  const at = { height: `${row.height}px`, transform: `translateY(${row.top}px)` };
  if (row.group) {
    return html`
      <div key=${row.key} class="shelf-head" role="listitem" data-row=${place} style=${at}>
        ${head(row.group)}</div>`;
  }
  return html`
    <div key=${row.key} class="shelf-row" role="presentation" data-row=${place}
      style=${{
        ...at, gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))`, gap: `${GAP}px`,
      }}>
      ${row.items.map((item, index) => html`
        <div key=${item.name} role="listitem" data-place=${row.first + index}
          aria-setsize=${count} aria-posinset=${row.first + index + 1}>${card(item)}</div>`)}
    </div>`;
}

/* The position of each row. */
function laidOut(groups, columns, cardHeight, headHeight) {
  const rows = [];
  let top = 0;
  let count = 0;
  for (const group of groups) {
    if (group.head) {
      rows.push({ key: `head ${group.key}`, top, height: headHeight, group });
      top += headHeight;
    }
    for (let index = 0; index < group.items.length; index += columns) {
      const items = group.items.slice(index, index + columns);
      rows.push({
        key: `${group.key} ${items[0].name}`, top, height: cardHeight, items, first: count,
      });
      top += cardHeight + GAP;
      count += items.length;
    }
  }
  return { rows, height: top, count };
}

/* The last row that starts at or above a position. */
function rowAt(rows, height) {
  let low = 0;
  let high = rows.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (rows[middle].top <= height) low = middle;
    else high = middle - 1;
  }
  return low;
}

/* The card that an arrow key moves to; null if there is none. */
function next(rows, place, key, count) {
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (!STEPS[key]) return null;
  const [across, down] = STEPS[key];
  if (across) return place + across >= 0 && place + across < count ? place + across : null;
  const cards = rows.filter(({ items }) => items);
  const row = cards.findIndex((one) => place >= one.first && place < one.first + one.items.length);
  const target = cards[row + down];
  if (!target) return null;
  return target.first + Math.min(place - cards[row].first, target.items.length - 1);
}
