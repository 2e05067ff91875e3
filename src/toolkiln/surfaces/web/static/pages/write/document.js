// The edited document: a new tool or a new version of one, and its unsaved changes.
import { api } from "../../api.js";
import { useCallback, useEffect, useRef, useState } from "../../lib.js";
import { forget, keep, kept } from "./drafts.js";
import { STARTERS } from "./starters.js";

/* The current version of a tool, as {tool, saved, digest, version, helpers}. */
export async function current(tool, signal) {
  const about = await api.get(`/v1/tools/${encodeURIComponent(tool)}`, {}, { signal });
  if (about.version === null && !about.dev) {
    throw new Error(`${tool} is built in and has no source to edit`);
  }
  const path = `/v1/tools/${encodeURIComponent(tool)}/versions/${about.version ?? about.digest}`;
  const { sources } = await api.get(path, {}, { signal });
  const [[, saved], ...helpers] = Object.entries(sources);
  return {
    tool, saved, digest: about.digest, version: about.version,
    helpers: helpers.map(([name]) => name),
  };
}

function fresh() {
  return { tool: "", saved: STARTERS[0].source, digest: null, version: null, helpers: [] };
}

/* {document, source, isDirty, restored, error, opened: how many documents so far}, and what changes
   them: `write` for each keystroke, `load` another document, `settle` on one without a change of
   the text, `discard` what is not saved. */
export function useDocument(tool) {
  const [document, setDocument] = useState(null);
  const [source, setSource] = useState("");
  const [restored, setRestored] = useState(null);
  const [error, setError] = useState(null);
  const [opened, setOpened] = useState(0);
  const written = useRef(""); // text typed during a save is kept
  written.current = source;
  const origin = useRef(null); // the document without the draft

  const load = useCallback((found) => {
    forget(found.tool);
    origin.current = found;
    setDocument(found);
    setSource(found.saved);
    setRestored(null);
  }, []);

  const open = (found) => {
    setOpened((count) => count + 1);
    const draft = kept(found.tool);
    if (!draft || draft.source === found.saved) return load(found);
    origin.current = found;
    // A draft belongs to the version it started from, even if there are newer ones.
    setDocument({ ...found, digest: draft.digest });
    setSource(draft.source);
    return setRestored(draft.at);
  };

  useEffect(() => {
    if (document?.tool === tool) return undefined;
    const control = new AbortController();
    setError(null);
    setDocument(null);
    Promise.resolve(tool ? current(tool, control.signal) : fresh()).then(
      (found) => control.signal.aborted || open(found),
      (problem) => control.signal.aborted || setError(problem),
    );
    return () => control.abort();
  }, [tool]);

  const isDirty = document !== null && source !== document.saved;
  useEffect(() => {
    if (!isDirty) return undefined;
    const warn = (event) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [isDirty]);

  const write = (text) => {
    setSource(text);
    if (text === document.saved) forget(document.tool);
    else keep(document.tool, text, document.digest);
  };
  const discard = () => load(origin.current);
  const settle = (found) => {
    forget(document.tool);
    if (written.current !== found.saved) keep(found.tool, written.current, found.digest);
    origin.current = found;
    setDocument(found);
    setRestored(null);
  };
  return { document, source, isDirty, restored, error, opened, write, load, settle, discard };
}
