// Save a source as a tool, and describe the outcome.
import { api } from "../../api.js";
import { useWho } from "../../app.js";
import { Diff } from "../../diff.js";
import { html } from "../../lib.js";
import { Busy, Button, Icon, Trouble, useRequest } from "../../parts.js";
import { Link } from "../../router.js";
import { current } from "./document.js";
import { Note } from "./note.js";

/* {kind, name, …}; `digest` is the version that it takes the place of, null for a tool that is
   new. */
export async function save(name, source, digest) {
  const headers = digest ? { "If-Match": `"${digest}"` } : { "If-None-Match": "*" };
  try {
    const written = await api.put(`/v1/tools/${encodeURIComponent(name)}`, { source }, { headers });
    return { kind: written.proposed ? "proposed" : "saved", name, written };
  } catch (error) {
    if (error.code === "outdated") return { kind: digest ? "outdated" : "taken", name, error };
    if (error.code === "exists") return { kind: "taken", name, error };
    return { kind: "refused", name, error, findings: error.errors?.map(finding).filter(Boolean) };
  }
}

/* The findings in a problem whose locations are `body.source:LINE`. */
function finding({ place, message }) {
  const [, line] = place.match(/^body\.source:(\d+)$/) ?? [];
  if (!line) return null;
  const [, rule, said] = message.match(/^([a-z-]+): (.*)$/s) ?? [null, "refused", message];
  return { line: Number(line), severity: "error", rule, message: said, fix: "", repair: null };
}

export function Outcome({ outcome, source, onLoad, onReplace }) {
  const { kind, name, written, error } = outcome;
  if (kind === "saved") return html`<${Saved} name=${name} written=${written} />`;
  if (kind === "proposed") return html`<${Proposed} name=${name} />`;
  if (kind === "taken") return html`<${Taken} name=${name} />`;
  if (kind === "outdated") return html`<${Outdated} ...${{ name, source, onLoad, onReplace }} />`;
  const rest = error.errors?.filter(({ place }) => !place.startsWith("body.source:"));
  const problem = { message: `not saved: ${error.message}`, hint: error.hint, errors: rest };
  return html`<${Trouble} error=${problem} />`;
}

function Saved({ name, written }) {
  return html`
    <div class="notice ok" role="status">
      <p><${Icon} name="circle-check" /> <span>
        Saved as version ${written.version}: <strong>${name}</strong> can be called. <${Link}
          to=${`/tools/${encodeURIComponent(name)}`}>Open tool</${Link}></span></p>
      ${written.notes.map((note) => html`<p class="hint">${note}</p>`)}
    </div>`;
}

function Proposed({ name }) {
  const who = useWho();
  return html`
    <${Note} kind="info" icon="hourglass">
      <strong>${name}</strong> is proposed. It can be called once a person with ADMIN admits
      it${who?.may("ADMIN")
        ? html`: <${Link} to="/approvals">you can do that</${Link}>.` : "."}</${Note}>`;
}

function Taken({ name }) {
  return html`
    <div class="notice warn" role="alert"><p><${Icon} name="triangle-alert" /> <span>Not saved: the
      name <strong>${name}</strong> is taken. Give the function another name,
      or <${Link} to=${`/write?tool=${encodeURIComponent(name)}`}>open that tool</${Link}>; what is
      written here stays.</span></p></div>`;
}

/* A conflict with another user's version: the differences, and the choice between the two. */
function Outdated({ name, source, onLoad, onReplace }) {
  const { value, error, again } = useRequest((signal) => current(name, signal), [name]);
  if (error) return html`<${Trouble} error=${error} onRetry=${again} />`;
  if (!value) return html`<${Busy} label="Loading the newer version" />`;
  return html`
    <div class="notice warn" role="alert">
      <p><${Icon} name="triangle-alert" /> <span>There is a newer version
        of <strong>${name}</strong> than the one that this was begun with:
        version ${value.version}. Your differences:</span></p>
      <${Diff} before=${value.saved} after=${source} label="Newer version and your version" />
      <div class="row">
        <${Button} icon="download"
          onClick=${() => onLoad(value)}>Load newer version, discard mine</${Button}>
        <${Button} icon="pencil"
          onClick=${() => onReplace(value)}>Keep mine, replace newer version</${Button}>
      </div>
    </div>`;
}
