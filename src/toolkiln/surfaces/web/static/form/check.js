// Validation of a value, by the part of JSON Schema that can be checked here with certainty.
// The rest is left to the server: nothing is rejected here that it would accept.
import { Unfinished, comparable, isInteger, isNumber, isObject, write } from "./json.js";
import { formatProblem, patternProblem } from "./texts.js";
import { counted, flat, hasType, mayBe, target } from "./schema.js";
import { choiceOf, equal } from "./values.js";

const MOST_STEPS = 100;
const MOST_PROBLEMS = 50;
// Comparing more items with each other takes too long.
const MOST_COMPARED = 1_000;
const NOUNS = {
  __proto__: null,
  string: "text",
  integer: "a whole number",
  number: "a number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  null: "null",
};

/* All problems as {path, message}, in the order of the schema; at most 50. */
export function check(root, value) {
  return found(root, root, value, [], MOST_STEPS).slice(0, MOST_PROBLEMS);
}

function found(root, node, value, path, steps) {
  if (value instanceof Unfinished) {
    return unfinished(value, path);
  }
  if (node === false) {
    return [{ path, message: "is not allowed" }];
  }
  if (typeof node !== "object" || node === null || steps <= 0) {
    return unfinished(value, path);
  }
  const here = ownProblem(node, value);
  if (here) {
    return [{ path, message: here }];
  }
  return [
    ...inPlace(root, node, value, path, steps),
    ...(Array.isArray(value) ? ofItems(root, node, value, path, steps) : []),
    ...(isObject(value) ? ofEntries(root, node, value, path, steps) : []),
  ];
}

/* Free-form parts are not described by a schema, and may still hold what is not typed to its
   end. */
function unfinished(value, path) {
  if (value instanceof Unfinished)
    return [{ path, message: value.problem, isMissing: !value.text }];
  if (Array.isArray(value)) return value.flatMap((item, at) => unfinished(item, [...path, at]));
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([name, item]) => unfinished(item, [...path, name]));
}

function ownProblem(node, value) {
  const types = node.type === undefined ? [] : [node.type].flat();
  if (types.length && !types.some((type) => hasType(value, type))) {
    return `is not ${types.map((type) => NOUNS[type] ?? type).join(" or ")}`;
  }
  if ("const" in node && !equal(node.const, value)) {
    return `is not ${brief(node.const)}`;
  }
  if (node.enum && !node.enum.some((one) => equal(one, value))) {
    return `is not one of ${listed(node.enum)}`;
  }
  if (isNumber(value)) return ofNumber(node, value);
  if (typeof value === "string") return ofText(node, value);
  return Array.isArray(value) ? ofList(node, value) : undefined;
}

function brief(value) {
  const text = write(value, 0);
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

function listed(values) {
  const more = values.length - 8;
  return values.slice(0, 8).map(brief).join(", ") + (more > 0 ? ` and ${more} others` : "");
}

function ofNumber(node, value) {
  const size = comparable(value);
  const { minimum: least, maximum: most, exclusiveMinimum: low, exclusiveMaximum: high } = node;
  // A long decimal is compared as the nearest double, which may lie on the bound itself.
  const isNear = typeof value !== "number" && !isInteger(value);
  // biome-ignore lint/suspicious/noDoubleEquals: a BigInt and a double may be the same number
  const isOn = (bound) => size == comparable(bound) && !isNear;
  if (least !== undefined && size < comparable(least)) return `is less than ${least}`;
  if (most !== undefined && size > comparable(most)) return `is greater than ${most}`;
  if (low !== undefined && (size < comparable(low) || isOn(low)))
    return `is not greater than ${low}`;
  if (high !== undefined && (size > comparable(high) || isOn(high)))
    return `is not less than ${high}`;
  const step = comparable(node.multipleOf);
  return step > 0 && !isMultiple(size, step)
    ? `is not a multiple of ${node.multipleOf}`
    : undefined;
}

function isMultiple(size, of) {
  if (typeof size === "bigint" || typeof of === "bigint") {
    const isKnown = [size, of].every((one) => typeof one === "bigint" || Number.isInteger(one));
    return !isKnown || BigInt(size) % BigInt(of) === 0n;
  }
  if (Number.isInteger(size) && Number.isInteger(of)) {
    return size % of === 0;
  }
  // Decimals are not doubles: only a value clearly between two multiples is rejected.
  const times = size / of;
  return !(Math.abs(times - Math.round(times)) > 1e-6) || Math.abs(times) > 1e9;
}

function ofText(node, value) {
  const { minLength: least, maxLength: most } = node;
  // Characters are code points, of which there are at most as many as units.
  if (
    least !== undefined &&
    (value.length < least || (value.length < 2 * least && [...value].length < least))
  ) {
    return least === 1 ? "is empty" : `is shorter than ${counted(least, "character")}`;
  }
  if (
    most !== undefined &&
    value.length > most &&
    (value.length > 2 * most || [...value].length > most)
  ) {
    return `is longer than ${counted(most, "character")}`;
  }
  return patternProblem(node.pattern, value) ?? formatProblem(node.format, value);
}

function ofList(node, value) {
  if (node.minItems !== undefined && value.length < node.minItems) {
    return `needs at least ${counted(node.minItems, "item")}`;
  }
  if (node.maxItems !== undefined && value.length > node.maxItems) {
    return `takes at most ${counted(node.maxItems, "item")}`;
  }
  return node.uniqueItems && hasTwins(value) ? "contains a duplicate item" : undefined;
}

function hasTwins(items) {
  const isPlain = (item) => typeof item === "string" || typeof item === "boolean" || item === null;
  if (items.every(isPlain)) {
    return new Set(items).size < items.length;
  }
  const few = items.length <= MOST_COMPARED ? items : [];
  return few.some((item, at) => few.slice(0, at).some((earlier) => equal(item, earlier)));
}

function ofItems(root, node, value, path, steps) {
  const fixed = node.prefixItems ?? [];
  if (!fixed.length && node.items === undefined) {
    return unfinished(value, path);
  }
  const problems = [];
  for (const [at, item] of value.entries()) {
    const part = at < fixed.length ? fixed[at] : (node.items ?? true);
    problems.push(...found(root, part, item, [...path, at], steps - 1));
    if (problems.length >= MOST_PROBLEMS) break;
  }
  return problems;
}

function ofEntries(root, node, value, path, steps) {
  const { properties = {}, patternProperties = {}, additionalProperties: others = true } = node;
  const problems = (node.required ?? [])
    .filter((name) => !Object.hasOwn(value, name))
    .map((name) => ({ path: [...path, name], message: "is required", isMissing: true }));
  const hasPatterns = Object.keys(patternProperties).length > 0;
  for (const [name, item] of Object.entries(value)) {
    const place = [...path, name];
    if (Object.hasOwn(properties, name)) {
      problems.push(...found(root, properties[name], item, place, steps - 1));
    } else if (hasPatterns) {
      problems.push(...unfinished(item, place));
    } else if (others === false) {
      problems.push({ path: place, message: "is not a known property" });
    } else {
      problems.push(...found(root, others, item, place, steps - 1));
    }
  }
  const size = Object.keys(value).length;
  if (size < (node.minProperties ?? 0)) {
    problems.push({ path, message: `needs at least ${node.minProperties} entries` });
  }
  if (size > (node.maxProperties ?? Infinity)) {
    problems.push({ path, message: `takes at most ${node.maxProperties} entries` });
  }
  return problems;
}

/* References, allOf, anyOf and oneOf; `not`, `if` and others are left to the server. */
function inPlace(root, node, value, path, steps) {
  const problems = [];
  const inner = [...(node.allOf ?? []), ...(node.$ref ? [target(root, node.$ref)] : [])];
  for (const part of inner) {
    problems.push(...found(root, part, value, path, steps - 1));
  }
  for (const choices of [node.anyOf, node.oneOf]) {
    if (choices?.length) {
      problems.push(...ofUnion(root, choices, value, path, steps, node.discriminator));
    }
  }
  return problems;
}

function ofUnion(root, choices, value, path, steps, discriminator) {
  const results = choices.map((one) => found(root, one, value, path, steps - 1));
  // A chosen alternative counts, even if the value would match others as well.
  const choice = choices.indexOf(choiceOf(value));
  if (choice >= 0) {
    return results[choice];
  }
  if (results.some((problems) => !problems.length)) {
    return [];
  }
  const best = bestVariant(root, choices, value, results);
  if (best >= 0) {
    return results[best];
  }
  const tag = discriminator?.propertyName;
  if (tag && isObject(value) && !Object.hasOwn(value, tag)) {
    return [{ path: [...path, tag], message: "is required", isMissing: true }];
  }
  return [{ path, message: "matches none of the alternatives" }];
}

/* The alternative that a value belongs to: what was chosen, else what it comes closest to; -1 if
   its outside fits none. */
export function bestVariant(root, choices, value, results) {
  const choice = choices.indexOf(choiceOf(value));
  if (choice >= 0) {
    return choice;
  }
  const known = results ?? choices.map((one) => found(root, one, value, [], MOST_STEPS));
  let best = -1;
  for (const [at, problems] of known.entries()) {
    const isCloser = best < 0 || problems.length < known[best].length;
    if (isCloser && (!problems.length || mayBe(root, choices[at], value))) {
      best = at;
    }
  }
  return best;
}

/* Problems of a single control that is not part of a form. */
export function problemsOf(root, node, value) {
  return found(root, flat(root, node), value, [], MOST_STEPS);
}
