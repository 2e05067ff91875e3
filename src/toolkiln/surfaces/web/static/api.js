// Client of the HTTP API: JSON requests, problems as errors, and event streams.
import { parsed } from "./exact_number.js";

const HEADERS = { "X-Toolkiln-Page": "1" };

/* A request that the server rejected, or that did not reach it. */
export class Problem extends Error {
  constructor(status, { code, detail, title, hint, errors } = {}) {
    super(detail || title || `the server returned ${status}`);
    Object.assign(this, { status, code: code ?? "", hint: hint ?? "", errors: errors ?? [] });
  }
}

export const api = {
  get: (path, query, options) => json("GET", withQuery(path, query), undefined, options),
  post: (path, body, options) => json("POST", path, body ?? {}, options),
  put: (path, body, options) => json("PUT", path, body, options),
  patch: (path, body, options) => json("PATCH", path, body, options),
  delete: (path, query, options) => json("DELETE", withQuery(path, query), undefined, options),
  stream,
};

function withQuery(path, query = {}) {
  const isGiven = ([, value]) => value !== undefined && value !== null;
  const given = Object.entries(query ?? {}).filter(isGiven);
  const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

async function json(method, path, body, { headers, signal } = {}) {
  const wanted = { ...headers, Accept: "application/json" };
  const response = await send(method, path, body, wanted, signal);
  const text = await response.text();
  return text ? parsed(text) : null;
}

/* Server-sent events as {event, data}, until the server or the signal ends the stream. */
async function* stream(method, path, body, { headers, signal } = {}) {
  const accept = { ...headers, Accept: "text/event-stream" };
  const response = await send(method, path, body, accept, signal);
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    yield { event: "result", data: parsed(await response.text()) };
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let block = []; // the parts of an incomplete event; joined once, since it can be large
  let held = ""; // a line break at the end of a part, perhaps the first of two
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      let text = held + value;
      held = text.endsWith("\n") && !text.endsWith("\n\n") ? "\n" : "";
      text = text.slice(0, text.length - held.length);
      const [first, ...others] = text.split("\n\n");
      block.push(first);
      for (const next of others) {
        const found = read(block.join(""));
        block = [next];
        if (found) yield found;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have ended by itself
  }
}

function read(block) {
  const fields = { event: "message", data: "" };
  for (const line of block.split("\n")) {
    // With s, since JSON may hold U+2028, where a dot would end.
    const [, name, value] = line.match(/^(event|data): ?(.*)$/s) ?? [];
    if (name === "event") fields.event = value;
    if (name === "data") fields.data += value;
  }
  return fields.data ? { event: fields.event, data: parsed(fields.data) } : null;
}

async function send(method, path, body, headers, signal) {
  const sent = { ...HEADERS, ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const hint = "this page continues when the server is back";
    throw new Problem(0, { code: "unreachable", detail: "the server cannot be reached", hint });
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  if (response.status === 401) dispatchEvent(new Event("toolkiln:unauthorized"));
  throw new Problem(response.status, said);
}
