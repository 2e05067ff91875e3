// Export of all matching records as JSON lines, read in pages and saved as a file.
import { api } from "../../api.js";
import { html, useEffect, useRef, useState } from "../../lib.js";
import { Button, toast } from "../../parts.js";

const LARGEST_PART = 200;

export function Export({ wanted }) {
  const [count, setCount] = useState(null);
  const control = useRef(null);
  useEffect(() => () => control.current?.abort(), []);
  const save = async () => {
    control.current = new AbortController();
    const { signal } = control.current;
    const lines = [];
    try {
      let cursor;
      do {
        setCount(lines.length);
        const query = { ...wanted, limit: LARGEST_PART, cursor };
        const found = await api.get("/v1/audit", query, { signal });
        lines.push(...found.items.map((record) => `${JSON.stringify(record)}\n`));
        cursor = found.next_cursor;
      } while (cursor);
      download(new Blob(lines, { type: "application/jsonl" }), "audit.jsonl");
      toast(`${lines.length.toLocaleString()} records saved`);
    } catch (error) {
      if (!signal.aborted) toast(error.message, "bad");
    } finally {
      setCount(null);
    }
  };
  if (count === null) return html`<${Button} icon="download" onClick=${save}>Export</${Button}>`;
  return html`<${Button} icon="x" onClick=${() => control.current.abort()}>
    <span role="status">${count.toLocaleString()} read: stop</span></${Button}>`;
}

function download(blob, name) {
  const href = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement("a"), { href, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
