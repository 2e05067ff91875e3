// Interpretation of a JSON Schema (2020-12, as Toolkiln derives it) for a form: control,
// alternatives and initial value. Pure; validation is in check.js.
import { Unfinished, isInteger, isNumber, isObject } from "./json.js";
import { equal } from "./values.js";

const MOST_STEPS = 60;
const DEEPEST_START = 8;
const ANNOTATIONS = ["title", "description", "default", "examples", "deprecated"];

/* The target of a local reference; undefined if there is none. */
export function target(root, reference) {
  if (reference === "#") {
    return root;
  }
  let node = root;
  for (const raw of reference.slice(2).split("/")) {
    const step = decodeURIComponent(raw).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof node !== "object" || node === null || !Object.hasOwn(node, step)) {
      return undefined;
    }
    node = node[step];
  }
  return node;
}

const flattened = new WeakMap();

/* A schema with its references and allOf merged, for rendering; outer keywords win. */
export function flat(root, node) {
  if (typeof node !== "object" || node === null) {
    return node === false ? { not: {} } : {};
  }
  if (!("$ref" in node) && !("allOf" in node)) {
    return node;
  }
  if (!flattened.has(node)) {
    flattened.set(node, merged(root, node, MOST_STEPS));
  }
  return flattened.get(node);
}

function merged(root, node, steps) {
  const { $ref, allOf, ...own } = node;
  const parts = [...(allOf ?? []), ...($ref ? [target(root, $ref)] : [])];
  let whole = {};
  for (const part of parts) {
    if (typeof part === "object" && part !== null && steps > 0) {
      whole = together(whole, merged(root, part, steps - 1));
    }
  }
  return together(whole, own);
}

function together(first, second) {
  const whole = { ...first, ...second };
  if (first.properties && second.properties) {
    whole.properties = { ...first.properties, ...second.properties };
  }
  if (first.required && second.required) {
    whole.required = [...new Set([...first.required, ...second.required])];
  }
  return whole;
}

/* Whether null is one of the values. */
export function isNullable(root, node) {
  const schema = flat(root, node);
  if (Array.isArray(schema.type)) {
    return schema.type.includes("null");
  }
  if (schema.enum) {
    return schema.enum.includes(null) && schema.enum.length > 1;
  }
  const choices = alternatives(schema);
  return Boolean(choices) && choices.length > 1 && choices.some((one) => isNull(root, one));
}

function isNull(root, node) {
  const schema = flat(root, node);
  return schema.type === "null" || schema.const === null;
}

function alternatives(schema) {
  return schema.anyOf ?? schema.oneOf;
}

const withoutNulls = new WeakMap();

/* The schema of the values other than null, with the title and description of the whole. */
export function withoutNull(root, node) {
  const schema = flat(root, node);
  if (!isNullable(root, schema)) {
    return schema;
  }
  if (!withoutNulls.has(schema)) {
    withoutNulls.set(schema, otherThanNull(root, schema));
  }
  return withoutNulls.get(schema);
}

function otherThanNull(root, schema) {
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    const values = schema.enum && { enum: schema.enum.filter((value) => value !== null) };
    return { ...schema, type: types.length === 1 ? types[0] : types, ...values };
  }
  if (schema.enum) {
    return { ...schema, enum: schema.enum.filter((value) => value !== null) };
  }
  const keyword = schema.anyOf ? "anyOf" : "oneOf";
  const left = schema[keyword].filter((one) => !isNull(root, one));
  const { [keyword]: _, ...rest } = schema;
  return left.length === 1 ? together(flat(root, left[0]), rest) : { ...schema, [keyword]: left };
}

/* Which control draws a schema: const, enum, boolean, number, string, list, object, map, union,
   nothing, or json if no other control applies. */
export function kindOf(schema) {
  if ("const" in schema) return "const";
  if (Array.isArray(schema.enum)) return "enum";
  if (alternatives(schema)?.length) return "union";
  if (Array.isArray(schema.type))
    return schema.type.length > 1 ? "union" : byType(schema, schema.type[0]);
  if (schema.type === undefined) return byShape(schema);
  return byType(schema, schema.type);
}

function byType(schema, type) {
  if (type === "integer" || type === "number") return "number";
  if (type === "string" || type === "boolean") return type;
  if (type === "null") return "nothing";
  if (type === "array") return schema.items || schema.prefixItems ? "list" : "json";
  return byShape(schema);
}

function byShape(schema) {
  if (schema.properties && Object.keys(schema.properties).length) return "object";
  if (isObject(schema.additionalProperties)) return "map";
  // A tool without parameters.
  return schema.additionalProperties === false && schema.type === "object" ? "object" : "json";
}

const split = new WeakMap();

/* The alternatives of a union. */
export function variants(schema) {
  if (!split.has(schema)) {
    const listed = alternatives(schema);
    const made = listed ?? schema.type.map((type) => ({ ...without(schema, ANNOTATIONS), type }));
    split.set(schema, made);
  }
  return split.get(schema);
}

function without(schema, names) {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !names.includes(name)));
}

const WORDS = {
  __proto__: null,
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "true or false",
  array: "list",
  object: "object",
  null: "null",
};

/* The name of an alternative that distinguishes it from the others, as far as possible. */
export function nameOf(root, node, property) {
  const schema = flat(root, node);
  const tag = property && flat(root, schema.properties?.[property] ?? {});
  if (tag && "const" in tag) return String(tag.const);
  if (tag?.enum) return tag.enum.join(" or ");
  if (schema.title) return schema.title;
  if (node.$ref?.startsWith("#/$defs/")) return decodeURIComponent(node.$ref.slice(8));
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return "one of several values";
  if (schema.format) return schema.format;
  if (schema.type === "array" && isObject(schema.items))
    return `list of ${many(root, schema.items)}`;
  if (kindOf(schema) === "map") return `${many(root, schema.additionalProperties)} by name`;
  return WORDS[schema.type] ?? "anything";
}

function many(root, node) {
  const { title, type } = flat(root, node);
  return title ?? (WORDS[type] ? `${WORDS[type]}s` : "values");
}

export function typeOf(value) {
  if (value === null) return "null";
  if (isNumber(value)) return isInteger(value) ? "integer" : "number";
  if (Array.isArray(value)) return "array";
  return typeof value === "object" ? "object" : typeof value;
}

export function hasType(value, type) {
  const own = typeOf(value);
  return own === type || (own === "integer" && type === "number");
}

/* Whether a value could belong to a schema, judged by its outside; what is unfinished always
   can. */
export function mayBe(root, node, value, steps = MOST_STEPS) {
  if (node === false) return false;
  const schema = flat(root, node);
  if (value === undefined || value instanceof Unfinished || !steps) return true;
  if ("const" in schema) return equal(schema.const, value);
  if (schema.enum) return schema.enum.some((one) => equal(one, value));
  const types = schema.type === undefined ? [] : [schema.type].flat();
  if (types.length && !types.some((type) => hasType(value, type))) return false;
  if (isObject(value) && schema.properties) return tagsFit(root, schema, value);
  const choices = alternatives(schema);
  return !choices?.length || choices.some((one) => mayBe(root, one, value, steps - 1));
}

function tagsFit(root, schema, value) {
  return Object.entries(schema.properties).every(([name, part]) => {
    const tag = flat(root, part);
    return !("const" in tag) || !Object.hasOwn(value, name) || equal(tag.const, value[name]);
  });
}

/* The initial value: fixed values and defaults of required properties. */
export function start(root, node, depth = 0) {
  const schema = flat(root, node);
  if ("const" in schema) return schema.const;
  if ("default" in schema) return schema.default;
  if (schema.enum?.length === 1) return schema.enum[0];
  const kind = kindOf(schema);
  if (kind === "nothing") return null;
  if (kind === "map") return {};
  if (kind === "list") return startOfList(root, schema, depth);
  if (kind === "object") return startOfObject(root, schema, depth);
  if (kind === "union" && !isNullable(root, schema)) {
    return depth < DEEPEST_START ? start(root, variants(schema)[0], depth + 1) : undefined;
  }
  return undefined;
}

function startOfObject(root, schema, depth) {
  const { properties = {}, required = [] } = schema;
  const begun = required
    .filter((name) => depth < DEEPEST_START && Object.hasOwn(properties, name))
    .map((name) => [name, start(root, properties[name], depth + 1)]);
  return Object.fromEntries(begun.filter(([, value]) => value !== undefined));
}

function startOfList(root, schema, depth) {
  const fixed = schema.prefixItems ?? [];
  const least = Math.max(fixed.length, Math.min(schema.minItems ?? 0, 20));
  if (depth >= DEEPEST_START) {
    return [];
  }
  return Array.from({ length: least }, (_, at) =>
    newItem(root, fixed[at] ?? schema.items, depth + 1),
  );
}

/* A new item of a list or map, where a value cannot be omitted. */
export function newItem(root, node, depth = 0) {
  return start(root, node ?? {}, depth) ?? new Unfinished("", "needs a value");
}

/* The initial arguments. */
export function usableDefault(schema) {
  return start(schema, schema) ?? {};
}

/* The bounds of a number or text, as a sentence. */
export function boundsOf(schema) {
  const said = [];
  const least = schema.minimum ?? schema.exclusiveMinimum;
  const most = schema.maximum ?? schema.exclusiveMaximum;
  if (least !== undefined)
    said.push(schema.minimum !== undefined ? `at least ${least}` : `more than ${least}`);
  if (most !== undefined)
    said.push(schema.maximum !== undefined ? `at most ${most}` : `less than ${most}`);
  if (schema.multipleOf !== undefined) said.push(`a multiple of ${schema.multipleOf}`);
  if (schema.minLength) said.push(`at least ${counted(schema.minLength, "character")}`);
  if (schema.maxLength !== undefined)
    said.push(`at most ${counted(schema.maxLength, "character")}`);
  if (schema.minItems && !schema.prefixItems)
    said.push(`at least ${counted(schema.minItems, "item")}`);
  if (schema.maxItems !== undefined && !schema.prefixItems)
    said.push(`at most ${counted(schema.maxItems, "item")}`);
  if (schema.uniqueItems) said.push("no duplicates");
  return said.join(", ");
}

export function counted(number, noun) {
  return `${Number(number).toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
