// How to call a tool from elsewhere: texts to copy.
import { html } from "../../lib.js";
import { Copy } from "../../parts.js";
import { sample } from "./sample.js";

/* `used` are arguments that are known to fit: of the last call here, or of an example. */
export function Snippets({ tool, used }) {
  const values = used ?? sample(tool.parameters);
  return html`<div class="stack narrow">${snippets(tool.name, values).map(({ title, text, note }) => html`
    <section class="panel snippet" aria-label=${title}>
      <div class="row"><h2>${title}</h2><span class="grow"></span>
        <${Copy} text=${text} label=${`Copy: ${title}`} /></div>
      <pre tabindex="0"><code>${text}</code></pre>
      ${note && html`<p class="hint">${note}</p>`}
    </section>`)}</div>`;
}

function snippets(name, values) {
  const json = JSON.stringify(values);
  const origin = location.origin;
  return [
    { title: "Command line", text: `toolkiln call ${name} ${quoted(json)}` },
    {
      title: "Python",
      text: [
        "from toolkiln import Kiln", "",
        'async with Kiln("tools") as kiln:',
        `    result = await kiln.call("${name}", ${python(values)})`,
        "    print(result.value)",
      ].join("\n"),
    },
    {
      title: "curl",
      text: [
        `curl -X POST ${origin}/v1/tools/${encodeURIComponent(name)}/call \\`,
        "  -H 'Content-Type: application/json' \\",
        `  -d ${quoted(JSON.stringify({ arguments: values }))}`,
      ].join("\n"),
    },
    {
      title: "MCP",
      text: JSON.stringify({ mcpServers: { toolkiln: { type: "http", url: `${origin}/mcp` } } }, null, 2),
      note: "toolkiln install claude-code | cursor | vscode | … writes this for a client.",
    },
  ];
}

/* One word for a shell, whatever is in it. */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/* JSON is Python but for three words. */
function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${python(each)}`).join(", ")}}`;
  }
  return { true: "True", false: "False", null: "None" }[String(value)] ?? JSON.stringify(value);
}
