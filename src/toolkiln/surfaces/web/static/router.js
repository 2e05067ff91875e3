// Addresses below /ui, and navigation between them without a reload.
import { html, useEffect, useState } from "./lib.js";

const ROOT = "/ui";

/* The current path, such as "/tools/convert" or "/"; still percent-encoded. */
export function usePath() {
  return useLocation(() => location.pathname.slice(ROOT.length) || "/");
}

/* The query parameters. */
export function useQuery() {
  return new URLSearchParams(useLocation(() => location.search));
}

function useLocation(look) {
  const [found, set] = useState(look);
  useEffect(() => {
    const again = () => set(look());
    addEventListener("popstate", again);
    return () => removeEventListener("popstate", again);
  }, []);
  return found;
}

export function navigate(to, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", ROOT + to);
  dispatchEvent(new PopStateEvent("popstate"));
  if (!replace) scrollTo(0, 0);
}

export function Link({ to, children, ...rest }) {
  const follow = (event) => {
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(to);
  };
  return html`<a href=${ROOT + to} onClick=${follow} ...${rest}>${children}</a>`;
}
