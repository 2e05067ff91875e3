// Sample arguments for a schema, for snippets without a call or an example.
import { flat } from "../../form/schema.js";

const DEEPEST = 6;
const TEXTS = {
  date: "2026-01-31", "date-time": "2026-01-31T12:00:00Z", time: "12:00:00Z", duration: "PT1H",
  email: "ann@example.org", uri: "https://example.org/",
  uuid: "00000000-0000-4000-8000-000000000000",
};

/* Required arguments only; optional ones keep their defaults. */
export function sample(schema, root = schema, depth = 0) {
  const node = flat(root, schema);
  if ("const" in node) return node.const;
  if ("default" in node) return node.default;
  if (node.enum) return node.enum[0];
  if (node.examples?.length) return node.examples[0];
  const choice = (node.anyOf ?? node.oneOf)?.[0];
  if (choice && depth < DEEPEST) return sample(choice, root, depth + 1);
  const type = Array.isArray(node.type) ? node.type[0] : node.type;
  if (type === "object") {
    const names = depth < DEEPEST ? node.required ?? [] : [];
    const part = (name) => sample(node.properties?.[name] ?? {}, root, depth + 1);
    return Object.fromEntries(names.map((name) => [name, part(name)]));
  }
  if (type === "array") {
    return Array.from({ length: Math.min(node.minItems ?? 0, 5) }, (_, at) =>
      sample(node.prefixItems?.[at] ?? node.items ?? {}, root, depth + 1));
  }
  if (type === "integer" || type === "number") return number(node);
  if (type === "boolean") return false;
  if (type === "null") return null;
  return (TEXTS[node.format] ?? "text").padEnd(node.minLength ?? 0, "…")
    .slice(0, node.maxLength ?? 200);
}

function number({
  type, minimum, exclusiveMinimum, maximum, exclusiveMaximum, multipleOf: step = 1,
}) {
  const least = minimum ?? (exclusiveMinimum === undefined ? undefined : exclusiveMinimum + step);
  const most = maximum ?? (exclusiveMaximum === undefined ? undefined : exclusiveMaximum - step);
  const wanted = Math.min(Math.max(step, least ?? step), most ?? Infinity);
  return type === "integer" ? Math.ceil(wanted) : wanted;
}
