// Addresses below /ui, and the way from one to the other without a new page.
import { html, useEffect, useState } from "./lib.js";

const ROOT = "/ui";

/* Where we are, as "/tools/convert" or "/"; what stands in it for other characters still does. */
export function usePath() {
  return useLocation(() => location.pathname.slice(ROOT.length) || "/");
}

/* What stands behind the question mark. */
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
