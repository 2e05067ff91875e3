// The frame of the page: the current user, the navigation, and the current page.
import { api } from "./api.js";
import { entitle, useWaiting } from "./badge.js";
import { createContext, html, render, useContext, useEffect, useRef, useState } from "./lib.js";
import { useConnection } from "./live.js";
import { Busy, Empty, Icon, Toasts, Trouble, reveal } from "./parts.js";
import { Link, navigate, usePath } from "./router.js";

const PAGES = [
  { at: /^\/$/, page: "catalog", title: "Catalog" },
  { at: /^\/tools\/([^/]+)$/, page: "tool", title: "Tool", also: ["form", "result", "diff"] },
  { at: /^\/write$/, page: "write", title: "Write", also: ["diff", "form", "result"] },
  { at: /^\/runs(?:\/([^/]+))?$/, page: "runs", title: "Runs", also: ["result"] },
  { at: /^\/approvals$/, page: "approvals", title: "Approvals", also: ["form", "result", "diff"] },
  { at: /^\/audit$/, page: "audit", title: "Audit", also: ["result"] },
  { at: /^\/settings$/, page: "settings", title: "Settings", also: ["result"] },
  { at: /^\/login$/, page: "login", title: "Sign in" },
];
const NAVIGATION = [
  { to: "/", title: "Catalog", icon: "layout-grid" },
  { to: "/write", title: "Write", icon: "pencil", privilege: "WRITE_TOOLS" },
  { to: "/runs", title: "Runs", icon: "activity", needsSignIn: true },
  { to: "/approvals", title: "Approvals", icon: "circle-check", needsSignIn: true },
  { to: "/audit", title: "Audit", icon: "scroll-text", privilege: "ADMIN" },
  { to: "/settings", title: "Settings", icon: "settings" },
];
const Who = createContext(null);

/* The current user: {user, kind, privileges, may(privilege), …}. */
export function useWho() {
  return useContext(Who);
}

function App() {
  const [who, setWho] = useState(null);
  const [trouble, setTrouble] = useState(null);
  const path = usePath();

  const look = () => api.get("/v1/sessions/own").then((own) => {
    const privileges = new Set(own.privileges);
    setTrouble(null);
    setWho({ ...own, privileges, may: (privilege) => privileges.has(privilege) });
    dispatchEvent(new Event("toolkiln:known"));
  }).catch((error) => (error.status === 401 ? setWho(null) : setTrouble(error)));

  useEffect(() => {
    look();
    const signIn = () => {
      if (location.pathname === "/ui/login") return;
      const back = location.pathname.slice("/ui".length) + location.search;
      navigate(`/login?to=${encodeURIComponent(back)}`, { replace: true });
    };
    addEventListener("toolkiln:unauthorized", signIn);
    addEventListener("toolkiln:login", look);
    return () => {
      removeEventListener("toolkiln:unauthorized", signIn);
      removeEventListener("toolkiln:login", look);
    };
  }, []);

  let content = html`<${Busy} label="Checking your identity" />`;
  if (trouble) content = html`<${Trouble} error=${trouble} onRetry=${look} />`;
  else if (who || path === "/login") content = html`<${Current} path=${path} />`;
  return html`
    <${Who.Provider} value=${who}>
      <a class="skip" href="#main">Skip to content</a>
      <${Bar} path=${path} />
      <main id="main" tabindex="-1">
        ${who?.kind === "anonymous" && path !== "/login" && html`<${NotSignedIn} />`}
        ${content}
      </main>
      <${Toasts} />
    </${Who.Provider}>`;
}

function NotSignedIn() {
  return html`
    <p class="not-signed-in" role="note"><${Icon} name="circle-user-round" />
      <span>You are not signed in. Tools that use secrets or a workspace, or run outside the
        sandbox, are hidden, calls are not listed, and you cannot approve or administer. Open the
        sign-in link that the server printed in its terminal, or
        ${" "}<${Link} to="/login">sign in with an API key</${Link}>.</span></p>`;
}

function Bar({ path }) {
  const pages = useRef(null);
  useEffect(() => reveal(pages.current, "[aria-current]"), [path]);
  const who = useWho();
  const connection = useConnection();
  const waiting = useWaiting(who);
  const isAnonymous = who?.kind === "anonymous";
  const shown = NAVIGATION.filter(({ needsSignIn, privilege }) =>
    !who || (!(needsSignIn && isAnonymous) && (!privilege || who.may(privilege))));
  const item = ({ to, title, icon }) => html`
    <li><${Link} to=${to} aria-current=${isCurrent(to, path) ? "page" : undefined}>
      <${Icon} name=${icon} />${title}
      ${to === "/approvals" && waiting > 0 && html`
        <span class="count" aria-label=${`${waiting} waiting`}>${waiting}</span>`}
    </${Link}></li>`;
  return html`
    <header class="bar">
      <${Link} to="/" class="brand">
        <img src=${new URL("icon.svg", import.meta.url)} alt="" width="22" height="22" />Toolkiln
      </${Link}>
      <nav aria-label="Pages" ref=${pages}><ul>${shown.map(item)}</ul></nav>
      <span class="connection" role="status">
        ${connection === "away" && html`<${Icon} name="unplug" />Server unreachable`}
      </span>
      ${who && !isAnonymous && path !== "/login" && html`
        <${Link} to="/settings" class="who" title="You are signed in">
          <${Icon} name="user" />${who.user}</${Link}>`}
      ${isAnonymous && path !== "/login" && html`
        <${Link} to="/login" class="who" title="You are not signed in">
          <${Icon} name="log-in" />Sign in</${Link}>`}
    </header>`;
}

function isCurrent(to, path) {
  if (to === "/") return path === "/" || path.startsWith("/tools/");
  return path === to || path.startsWith(`${to}/`);
}

/* The page of an address, loaded when it is first shown. */
function Current({ path }) {
  const [shown, setShown] = useState({ path: null });
  useEffect(() => {
    let isWanted = true;
    load(path).then(
      (found) => isWanted && setShown({ path, ...found }),
      (error) => isWanted && setShown({ path, error }),
    );
    return () => { isWanted = false; };
  }, [path]);
  if (shown.error) {
    return html`<${Trouble} error=${shown.error} onRetry=${() => location.reload()} />`;
  }
  // The previous page stays until the next one is loaded, so that nothing jumps.
  if (!shown.Page) return html`<${Busy} label="Loading" />`;
  return html`<${shown.Page} key=${shown.key} ...${shown.given} />`;
}

function Nowhere({ path }) {
  const back = html`<${Link} to="/" class="button plain">All tools</${Link}>`;
  return html`
    <h1 class="hidden-text">Page not found</h1>
    <${Empty} icon="search-x" title=${`Page ${path} does not exist`} action=${back}>
      Check the address.</${Empty}>`;
}

async function load(path) {
  const known = PAGES.find(({ at }) => at.test(path));
  if (!known) return { Page: Nowhere, key: path, given: { path } };
  const [, name] = path.match(known.at);
  const sheets = [...(known.also ?? []), `pages/${known.page}`];
  const [module] = await Promise.all([import(`./pages/${known.page}.js`), ...sheets.map(sheet)]);
  entitle(`${name ? decodeURIComponent(name) : known.title} · Toolkiln`);
  const given = name === undefined ? {} : { name: decodeURIComponent(name) };
  return { Page: module.default, key: `${known.page} ${name ?? ""}`, given };
}

const sheets = new Map();

/* Load a style sheet once; the page waits for it, so that nothing is shown unstyled. */
function sheet(name) {
  if (!sheets.has(name)) {
    sheets.set(name, new Promise((resolve) => {
      const link = Object.assign(document.createElement("link"), {
        rel: "stylesheet", href: new URL(`${name}.css`, import.meta.url),
        onload: resolve, onerror: resolve,
      });
      document.head.append(link);
    }));
  }
  return sheets.get(name);
}

render(html`<${App} />`, document.getElementById("page"));
