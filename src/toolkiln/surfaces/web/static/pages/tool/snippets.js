// Snippets to copy that call the tool from elsewhere.
import { useWho } from "../../app.js";
import { Exact } from "../../exact_number.js";
import { html } from "../../lib.js";
import { Copy } from "../../parts.js";
import { sample } from "./sample.js";

/* `used` are valid arguments: those of the last call here, or of an example. */
export function Snippets({ tool, used }) {
  const values = used ?? sample(tool.parameters);
  const needsKey = useWho().key_id !== null;
  const shown = snippets(tool.name, values, needsKey);
  return html`<div class="stack narrow">${shown.map(({ title, text, note }) => html`
    <section class="panel snippet" aria-label=${title}>
      <div class="row"><h2>${title}</h2><span class="grow"></span>
        <${Copy} text=${text} label=${`Copy: ${title}`} /></div>
      <pre tabindex="0"><code>${text}</code></pre>
      ${note && html`<p class="hint">${note}</p>`}
    </section>`)}</div>`;
}

function snippets(name, values, needsKey) {
  const origin = location.origin;
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the client puts the key in its place
  const headers = { Authorization: "Bearer ${TOOLKILN_API_KEY}" };
  const server = { type: "http", url: `${origin}/mcp`, ...(needsKey && { headers }) };
  return [
    {
      title: "Command line",
      text: `toolkiln call ${name} ${quoted(JSON.stringify(values))}`,
      note: "Run this in the tools' project; it needs no server.",
    },
    {
      title: "Python",
      text: [
        "from toolkiln import Kiln", "",
        'with Kiln("tools") as kiln:',
        `    result = kiln.call_sync("${name}", ${python(values)})`,
        "    print(result.value)",
      ].join("\n"),
      note: "In a coroutine, use async with and await kiln.call(…).",
    },
    {
      title: "curl",
      text: [
        `curl -X POST ${origin}/v1/tools/${encodeURIComponent(name)}/call \\`,
        "  -H 'Content-Type: application/json' \\",
        ...(needsKey ? ['  -H "Authorization: Bearer $TOOLKILN_API_KEY" \\'] : []),
        `  -d ${quoted(JSON.stringify({ arguments: values }))}`,
      ].join("\n"),
    },
    {
      title: "MCP",
      text: JSON.stringify({ mcpServers: { toolkiln: server } }, null, 2),
      note: "toolkiln install CLIENT adds this to a client's configuration, as its own server.",
    },
  ];
}

/* Quote a text for a shell. */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/* JSON as Python: only three literals differ. */
function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value !== null && typeof value === "object" && !(value instanceof Exact)) {
    const entries = Object.entries(value)
      .map(([key, each]) => `${JSON.stringify(key)}: ${python(each)}`);
    return `{${entries.join(", ")}}`;
  }
  if (typeof value === "string") return JSON.stringify(value);
  return { true: "True", false: "False", null: "None" }[String(value)] ?? String(value);
}
