// Unsaved work by tool; it lives as long as the tab.
const PREFIX = "toolkiln.write.";

/* {source, digest, at}, or null. */
export function kept(tool) {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + tool));
  } catch {
    return null; // the browser stores nothing, or other code wrote there
  }
}

export function keep(tool, source, digest) {
  try {
    const draft = { source, digest, at: Date.now() / 1000 };
    sessionStorage.setItem(PREFIX + tool, JSON.stringify(draft));
  } catch {
    // The browser keeps nothing; leaving the page still warns.
  }
}

export function forget(tool) {
  try {
    sessionStorage.removeItem(PREFIX + tool);
  } catch {
    // Nothing was stored either.
  }
}
