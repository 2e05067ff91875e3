// JSON text ↔ values, keeping what JSON.parse loses: numbers beyond doubles, and
// the position of the first error. Independent of schemas.
import { Exact, isWhole, numberOf } from "../exact_number.js";

export { Exact };

/* Typed text that is not a value yet; `problem` says why. */
export class Unfinished {
  constructor(text, problem) {
    this.text = text;
    this.problem = problem;
  }

  toJSON() {
    return this.text;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const LOOSE = /^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/;
const INTEGER = /^-?\d+$/;
// The server rejects deeper values, which would exhaust the stack here.
const DEEPEST = 200;

/* A typed number, looser than JSON (+5, .5, 5.); undefined if it is not a number. */
export function typedNumber(typed) {
  const text = typed.trim();
  if (!LOOSE.test(text)) {
    return undefined;
  }
  const [, sign, whole, part, power] = /^([-+]?)(\d*)\.?(\d*)([eE].*)?$/.exec(text);
  const bare = whole.replace(/^0+(?=\d)/, "") || "0";
  return numberOf(`${sign === "-" ? "-" : ""}${bare}${part ? `.${part}` : ""}${power ?? ""}`);
}

export function isNumber(value) {
  return typeof value === "number" || value instanceof Exact;
}

export function isInteger(value) {
  return value instanceof Exact ? isWhole(value.text) : Number.isInteger(value);
}

/* For comparisons, which JavaScript makes exactly between BigInt and double. */
export function comparable(value) {
  if (!(value instanceof Exact)) {
    return value;
  }
  return INTEGER.test(value.text) ? BigInt(value.text) : Number(value.text);
}

export function isObject(value) {
  const isPlain = typeof value === "object" && value !== null && !Array.isArray(value);
  return isPlain && !(value instanceof Exact) && !(value instanceof Unfinished);
}

/* A JSON text's value. Throws JsonError. */
export function parse(text) {
  return new Reader(text).document();
}

/* The first error in a JSON text and its position; lines and columns count from 1. */
export class JsonError extends Error {
  constructor(message, text, offset) {
    super(message);
    const before = text.slice(0, offset).split("\n");
    this.offset = offset;
    this.line = before.length;
    this.column = before.at(-1).length + 1;
  }
}

export function write(value, indent = 2) {
  const marks = [];
  // A private mark takes the place of each exact number; JSON.rawJSON is not everywhere yet.
  const text = JSON.stringify(
    value,
    function (key, shown) {
      const own = this[key];
      if (!(own instanceof Exact)) {
        return shown;
      }
      marks.push(own.text);
      return `\uE000${marks.length - 1}\uE000`;
    },
    indent,
  );
  return marks.length ? text.replace(/"\uE000(\d+)\uE000"/g, (all, at) => marks[at] ?? all) : text;
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  document() {
    const value = this.value(0);
    this.space();
    if (this.at < this.text.length) {
      this.fail("unexpected text after the end of the value");
    }
    return value;
  }

  fail(message, offset = this.at) {
    throw new JsonError(message, this.text, offset);
  }

  space() {
    while (" \t\n\r".includes(this.text[this.at] || "x")) {
      this.at += 1;
    }
  }

  value(depth) {
    this.space();
    if (depth > DEEPEST) {
      this.fail("nested too deeply");
    }
    const mark = this.text[this.at];
    if (mark === undefined) {
      this.fail("expected a value at the end of the text");
    }
    if (mark === "{") return this.object(depth);
    if (mark === "[") return this.array(depth);
    if (mark === '"') return this.string();
    if (mark === "-" || (mark >= "0" && mark <= "9")) return this.number();
    return this.word();
  }

  word() {
    const word = /[^\s,:[\]{}"]*/y;
    word.lastIndex = this.at;
    const found = word.exec(this.text)[0];
    const values = { true: true, false: false, null: null };
    if (!Object.hasOwn(values, found)) {
      const said = { __proto__: null, True: "true", False: "false", None: "null" }[found];
      this.fail(
        said
          ? `JSON spells ${found} ${said}`
          : `“${(found || this.text[this.at]).slice(0, 20)}” is not a JSON value; ` +
            "put text in quotes",
      );
    }
    this.at += found.length;
    return values[found];
  }

  number() {
    NUMBER.lastIndex = this.at;
    const found = NUMBER.exec(this.text);
    const next = found && this.text[this.at + found[0].length];
    if (!found || (next && /[\w.+-]/.test(next))) {
      this.fail("not a JSON number");
    }
    this.at += found[0].length;
    return numberOf(found[0]);
  }

  string() {
    const start = this.at;
    // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON has none of them in a string
    const end = /["\\\u0000-\u001f]/g;
    end.lastIndex = start + 1;
    for (let found = end.exec(this.text); found; found = end.exec(this.text)) {
      if (found[0] === '"') {
        this.at = found.index + 1;
        return this.unescaped(start);
      }
      if (found[0] !== "\\") {
        this.fail("write a line break or tab within text as \\n or \\t", found.index);
      }
      end.lastIndex = found.index + 2;
    }
    return this.fail("this text has no closing quote", start);
  }

  unescaped(start) {
    try {
      return JSON.parse(this.text.slice(start, this.at));
    } catch {
      return this.fail("this text contains an invalid escape", start);
    }
  }

  array(depth) {
    const items = [];
    this.at += 1;
    this.space();
    while (this.text[this.at] !== "]") {
      items.push(this.value(depth + 1));
      this.separator("]");
    }
    this.at += 1;
    return items;
  }

  object(depth) {
    // Object.fromEntries makes own properties of every name, "__proto__" too.
    const entries = new Map();
    this.at += 1;
    this.space();
    while (this.text[this.at] !== "}") {
      if (this.text[this.at] !== '"') {
        this.fail("expected a name in quotes");
      }
      const start = this.at;
      const name = this.string();
      if (entries.has(name)) {
        this.fail(`the name “${name.slice(0, 40)}” is a duplicate`, start);
      }
      this.space();
      if (this.text[this.at] !== ":") {
        this.fail("expected a colon");
      }
      this.at += 1;
      entries.set(name, this.value(depth + 1));
      this.separator("}");
    }
    this.at += 1;
    return Object.fromEntries(entries);
  }

  separator(closing) {
    this.space();
    const mark = this.text[this.at];
    if (mark === closing) {
      return;
    }
    if (mark !== ",") {
      this.fail(
        mark === undefined ? `a ${closing} is missing` : `expected a comma or ${closing}`,
      );
    }
    this.at += 1;
    this.space();
    if (this.text[this.at] === closing) {
      this.fail("unexpected comma", this.at);
    }
  }
}
