// Values of a form: equality, paths, and copying updates. Values are JSON, with Exact and
// Unfinished (json.js) for numbers that are too long or half-typed.
import { Exact, comparable, isNumber, isObject } from "./json.js";

/* Equality of JSON Schema: 1 and 1.0 are the same, 1 and true are not. */
export function equal(first, second) {
  if (first === second) return true;
  if (isNumber(first) && isNumber(second)) {
    const isLong = first instanceof Exact && second instanceof Exact;
    // biome-ignore lint/suspicious/noDoubleEquals: a BigInt and a double may be the same number
    return (isLong && first.text === second.text) || comparable(first) == comparable(second);
  }
  if (Array.isArray(first) && Array.isArray(second)) {
    return first.length === second.length && first.every((item, at) => equal(item, second[at]));
  }
  if (!isObject(first) || !isObject(second)) return false;
  const names = Object.keys(first);
  const isSameSize = names.length === Object.keys(second).length;
  return (
    isSameSize &&
    names.every((name) => Object.hasOwn(second, name) && equal(first[name], second[name]))
  );
}

// The chosen alternative of a union for a list or object; copied with it.
const chosen = new WeakMap();

export function choose(value, variant) {
  if (typeof value === "object" && value !== null) {
    chosen.set(value, variant);
  }
  return value;
}

export function choiceOf(value) {
  return typeof value === "object" && value !== null ? chosen.get(value) : undefined;
}

function copied(before, after) {
  const choice = choiceOf(before);
  return choice === undefined ? after : choose(after, choice);
}

/* A copy of the object with one entry set, or removed if undefined; the order stays. */
export function withEntry(object, name, value) {
  if (value !== undefined) {
    return copied(object, Object.fromEntries([...Object.entries({ ...object }), [name, value]]));
  }
  return copied(object, Object.fromEntries(Object.entries(object).filter(([key]) => key !== name)));
}

export function renamed(object, before, after) {
  const entries = Object.entries(object).map(([key, value]) => [
    key === before ? after : key,
    value,
  ]);
  return copied(object, Object.fromEntries(entries));
}

export function withItem(list, at, value) {
  return copied(
    list,
    list.map((item, index) => (index === at ? value : item)),
  );
}

export function withoutItem(list, at) {
  return copied(
    list,
    list.filter((_, index) => index !== at),
  );
}

export function withMore(list, value) {
  return copied(list, [...list, value]);
}

export function moved(list, from, to) {
  const items = [...list];
  items.splice(to, 0, ...items.splice(from, 1));
  return copied(list, items);
}

export function valueAt(value, path) {
  let found = value;
  for (const step of path) {
    const isThere = typeof found === "object" && found !== null && Object.hasOwn(found, step);
    if (!isThere) return undefined;
    found = found[step];
  }
  return found;
}

/* A path as the server and the command line write it: `items[2].name`. */
export function placeOf(path) {
  return path.reduce((text, step) => {
    if (typeof step === "number") return `${text}[${step}]`;
    if (!/^[\p{L}_][\p{L}\p{N}_-]*$/u.test(step)) return `${text}[${JSON.stringify(step)}]`;
    return text ? `${text}.${step}` : step;
  }, "");
}

/* The steps of such a path, which may start with `body.arguments` or `arguments`. */
export function pathOf(place) {
  const path = [];
  const step = /\.?([^.[\]]+)|\[(\d+)\]|\[(["'])(.*?)\3\]/gy;
  const text = place.replace(/^(body\.)?arguments(?=$|[.[])\.?/, "");
  while (step.lastIndex < text.length) {
    const found = step.exec(text);
    if (!found) return undefined;
    const [, name, index, , quoted] = found;
    path.push(index !== undefined ? Number(index) : (name ?? quoted));
  }
  return path;
}

/* The key of a path in a map; numbers and names do not collide. */
export function keyOf(path) {
  return JSON.stringify(path);
}
