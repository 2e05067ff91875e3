// Bundles what the page takes from npm: node web/build.mjs MODULES TARGET [--accept]
//
// Each file of `entries` becomes one file of TARGET, beside the licences of all that is in them.
// What comes out has to have the hashes in hashes.json; `--accept` writes them anew, after
// package-lock.json or an entry was changed.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const [modules, target, accept] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const hashesFile = join(here, "hashes.json");
const { build } = createRequire(resolve(modules, "any.js"))("esbuild");

const entries = readdirSync(join(here, "entries")).sort();
const made = await build({
  entryPoints: entries.map((name) => join(here, "entries", name)),
  nodePaths: [resolve(modules)],
  outdir: resolve(target),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  metafile: true,
  write: false,
});

const files = new Map(made.outputFiles.map((file) => [basename(file.path), file.contents]));
files.set("uplot.css", readFileSync(join(modules, "uplot/dist/uPlot.min.css")));
files.set("LICENSES.txt", Buffer.from(licences()));

const hashes = Object.fromEntries([...files].sort().map(([name, data]) => [name, hash(data)]));
if (accept === "--accept") {
  writeFileSync(hashesFile, `${JSON.stringify(hashes, null, 2)}\n`);
} else if (JSON.stringify(hashes) !== readFileSync(hashesFile, "utf8").replace(/\s/g, "")) {
  console.error("the bundle differs from web/hashes.json; see web/README.md");
  process.exit(1);
}
rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
for (const [name, data] of files) writeFileSync(join(target, name), data);

function hash(data) {
  return createHash("sha256").update(data).digest("hex");
}

/* The licence of every package of which something is in a bundle. */
function licences() {
  const used = new Set(["uplot"]);
  for (const path of Object.keys(made.metafile.inputs)) {
    const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules)/);
    if (found) used.add(found[1]);
  }
  return [...used].sort().map((name) => {
    const about = JSON.parse(readFileSync(join(modules, name, "package.json"), "utf8"));
    const file = readdirSync(join(modules, name)).find((each) => /^licen[cs]e/i.test(each));
    const text = file ? readFileSync(join(modules, name, file), "utf8").trim() : "";
    return `${name} ${about.version} (${about.license})\n\n${text}\n`;
  }).join(`\n${"-".repeat(80)}\n\n`);
}
