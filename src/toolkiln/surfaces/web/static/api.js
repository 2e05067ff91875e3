// The HTTP API: JSON in and out, problems as errors in words, and streams of events.
import { parsed } from "./exact.js";

const HEADERS = { "X-Toolkiln-Page": "1" };

/* What the server, or the way to it, has to say against a request. */
export class Problem extends Error {
  constructor(status, { code, detail, title, hint, errors } = {}) {
    super(detail || title || `the server answered ${status}`);
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
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  const text = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

async function json(method, path, body, { headers, signal } = {}) {
  const response = await send(method, path, body, { ...headers, Accept: "application/json" }, signal);
  const text = await response.text();
  return text ? parsed(text) : null;
}

/* Server-sent events as {event, data}, until the server ends them or the signal does. */
async function* stream(method, path, body, { headers, signal } = {}) {
  const accept = { ...headers, Accept: "text/event-stream" };
  const response = await send(method, path, body, accept, signal);
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    yield { event: "result", data: parsed(await response.text()) };
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (waiting + value).split("\n\n");
      waiting = blocks.pop();
      for (const block of blocks) {
        const found = read(block);
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
    const [, name, value] = line.match(/^(event|data): ?(.*)$/) ?? [];
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
    const hint = "this page goes on by itself when it is back";
    throw new Problem(0, { code: "unreachable", detail: "the server cannot be reached", hint });
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  if (response.status === 401) dispatchEvent(new Event("toolkiln:nobody"));
  throw new Problem(response.status, said);
}
