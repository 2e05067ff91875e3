// Numbers beyond the precision of doubles, read from JSON and written to JSON unchanged.

/* A number that a double would change, kept as it was written. */
export class Exact {
  constructor(text) {
    this.text = text;
  }

  // Where JSON.rawJSON is missing, the text goes out in quotes: the server reads numbers from
  // text wherever no text is wanted.
  toJSON() {
    return JSON.rawJSON ? JSON.rawJSON(this.text) : this.text;
  }

  toString() {
    return this.text;
  }
}

/* Digits and exponent of a decimal, so that two spellings of one number are equal. */
function canonical(text) {
  const [, sign, whole, part = "", power = "0"] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/.exec(
    text,
  );
  const digits = (whole + part).replace(/^0+/, "");
  const bare = digits.replace(/0+$/, "");
  const exponent = Number(power) - part.length + (digits.length - bare.length);
  return bare ? `${sign}${bare}e${exponent}` : "0";
}

/* The value of a JSON number: a double, or Exact if a double would change it. */
export function numberOf(text) {
  const value = Number(text);
  if (!Number.isFinite(value)) {
    return new Exact(text);
  }
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return new Exact(text);
  }
  // Up to 15 digits always survive; only longer numbers need a closer look.
  return text.length <= 15 || canonical(text) === canonical(String(value))
    ? value
    : new Exact(text);
}

/* Whether a JSON number has no fraction, however it is written. */
export function isWhole(text) {
  const [, power = "0"] = canonical(text).split("e");
  return Number(power) >= 0;
}

// Only these numbers need a check: whole ones of 16 digits, or more digits than a double
// is written with.
const LONG = /[:,[\s]-?(?:\d{16}|\d[\d.]{18})/;

/* JSON.parse, but for long numbers. Browsers that do not tell how a number was written give the
   nearest double. */
export function parsed(text) {
  if (!LONG.test(text)) {
    return JSON.parse(text);
  }
  return JSON.parse(text, (_key, value, context) =>
    typeof value === "number" && context?.source ? numberOf(context.source) : value,
  );
}
