// Patterns and formats of text, as far as they can be checked here with certainty; the server's
// `schema/validator_options.py` decides, and accepts what Python accepts.

const DATE = /^(\d{4})-(\d{2})-(\d{2})$/;
const CLOCK = new RegExp(
  /^(?:[01]\d|2[0-3])(:?[0-5]\d(:?[0-5]\d([.,]\d+)?)?)?/.source +
    /(Z|[-+]\d{2}(:?\d{2}(:?\d{2}([.,]\d+)?)?)?)?$/.source,
  "i",
);
const DURATION = new RegExp(
  /^[-+]?P(?=.)(\d+([.,]\d+)?Y)?(\d+([.,]\d+)?M)?(\d+([.,]\d+)?W)?(\d+([.,]\d+)?D)?/.source +
    /(T(?=.)(\d+([.,]\d+)?H)?(\d+([.,]\d+)?M)?(\d+([.,]\d+)?S)?)?$/.source,
  "i",
);
const CLOCK_DURATION = /^[-+]?(\d+\s*(d|days?)?,?\s*)?\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?$/i;

function isDate(text) {
  const found = DATE.exec(text);
  if (!found || found[1] === "0000") return false;
  const [year, month, day] = found.slice(1).map(Number);
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
}

function isDateTime(text) {
  const clock = text.slice(11);
  return isDate(text.slice(0, 10)) && (text.length === 10 || CLOCK.test(clock));
}

function isUuid(text) {
  const bare = text.replaceAll("urn:", "").replaceAll("uuid:", "");
  return /^[0-9a-f]{32}$/i.test(bare.replace(/^[{}]+|[{}]+$/g, "").replaceAll("-", ""));
}

function isIpv4(text) {
  const parts = text.split(".");
  return (
    parts.length === 4 &&
    parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) < 256)
  );
}

const FORMATS = {
  date: [(text) => isDate(text) || isDateTime(text), "a date, such as 2026-01-31"],
  "date-time": [isDateTime, "a date with time, such as 2026-01-31T09:30"],
  time: [
    (text) => text.includes(":") && CLOCK.test(text.replace(/^T/i, "")),
    "a time, such as 09:30",
  ],
  duration: [
    (text) => DURATION.test(text) || CLOCK_DURATION.test(text),
    "a duration, such as PT1H30M or 1:30:00",
  ],
  uuid: [isUuid, "a UUID"],
  email: [(text) => /^[^@\s]+@[^@\s]+\.[^@\s.]+$/.test(text), "an e-mail address"],
  uri: [(text) => /^ *[a-z][a-z0-9+.-]*:\S+ *$/i.test(text), "an address with its scheme"],
  ipv4: [isIpv4, "an IPv4 address"],
};

export function formatProblem(format, text) {
  if (!format || !Object.hasOwn(FORMATS, format)) {
    return undefined;
  }
  const [accepts, noun] = FORMATS[format];
  return accepts(text) ? undefined : `is not ${noun}`;
}

const compiled = new Map();
// A nested repetition can take forever on a text that nearly matches.
const SLOW = /\([^()]*[+*}][^()]*\)[+*{]/;

function regex(pattern) {
  if (!compiled.has(pattern)) {
    let made = null;
    try {
      made = SLOW.test(pattern) ? null : new RegExp(pattern, "u");
    } catch {
      // A pattern in another dialect is left to the server.
    }
    compiled.set(pattern, made);
  }
  return compiled.get(pattern);
}

export function patternProblem(pattern, text) {
  const expression = typeof pattern === "string" && text.length < 10_000 ? regex(pattern) : null;
  // The server's dot also matches these line ends.
  if (!expression || /[\r\u2028\u2029]/.test(text) || expression.test(text)) {
    return undefined;
  }
  const shown = pattern.length > 80 ? `${pattern.slice(0, 79)}…` : pattern;
  return `does not match the pattern ${shown}`;
}
