// Settings: the user's account, and for operators the configuration of the server.
import { useWho } from "../app.js";
import { api } from "../api.js";
import { html, useEffect, useRef } from "../lib.js";
import { Empty, Icon, Locked, useRequest } from "../parts.js";
import { Link, useQuery } from "../router.js";
import { About } from "./settings/about.js";
import { Environments } from "./settings/environments.js";
import { Fleet } from "./settings/fleet.js";
import { Keys } from "./settings/keys.js";
import { Privileges } from "./settings/privileges.js";
import { Rules } from "./settings/rules.js";
import { Sandbox } from "./settings/sandbox.js";
import { Sessions } from "./settings/sessions.js";
import { Values } from "./settings/values.js";
import { You } from "./settings/you.js";

const SECTIONS = [
  { id: "you", title: "You", icon: "user", Section: You, isForAll: true },
  { id: "sessions", title: "Sessions", icon: "monitor", Section: Sessions },
  { id: "keys", title: "Keys", icon: "key-round", Section: Keys },
  { id: "privileges", title: "Privileges", icon: "badge-check", Section: Privileges },
  { id: "rules", title: "Rules", icon: "scale", Section: Rules },
  { id: "environments", title: "Environments", icon: "package", Section: Environments },
  { id: "sandbox", title: "Sandbox", icon: "shield-check", Section: Sandbox },
  { id: "values", title: "Settings in force", icon: "sliders-horizontal", Section: Values },
  { id: "fleet", title: "Fleet", icon: "network", Section: Fleet },
  { id: "about", title: "About", icon: "info", Section: About, isForAll: true },
];

export default function Settings() {
  const who = useWho();
  const wanted = useQuery().get("section") ?? "you";
  const isOperator = who.may("ADMIN");
  const fleet = useRequest(async (signal) => isOperator && hasFleet(signal), [isOperator]);
  const isSeen = ({ id, isForAll }) => isForAll || (isOperator && (id !== "fleet" || fleet.value));
  const current = SECTIONS.find(({ id }) => id === wanted);
  const list = useRef(null);
  useEffect(() => { // on a narrow screen it may be out of view
    const item = list.current.querySelector("[aria-current]");
    item?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [wanted, fleet.value]);
  return html`
    <div class="page-head"><h1>Settings</h1></div>
    <div class="settings">
      <nav aria-label="Settings"><ul ref=${list}>
        ${SECTIONS.filter(isSeen).map(({ id, title, icon }) => html`
          <li key=${id}>
            <${Link} to=${`/settings?section=${id}`}
              aria-current=${id === wanted ? "true" : undefined}>
              <${Icon} name=${icon} />${title}</${Link}></li>`)}</ul></nav>
      <section aria-labelledby="section-title" class="stack" key=${wanted}>
        ${content(current, isOperator)}
      </section>
    </div>`;
}

function content(current, isOperator) {
  if (!current) {
    return html`<h2 id="section-title">Section not found</h2>
      <${Empty} icon="circle-help" title="This section does not exist">
        Choose one of the others.</${Empty}>`;
  }
  const { title, Section, isForAll } = current;
  return html`
    <h2 id="section-title">${title}</h2>
    ${isForAll || isOperator ? html`<${Section} />` : html`
      <${Locked} title="This section requires ADMIN" privilege="ADMIN" />`}`;
}

/* An unreachable fleet has a section too, which says so. */
async function hasFleet(signal) {
  try {
    return (await api.get("/v1/fleet", {}, { signal })).state !== null;
  } catch (error) {
    return error.status === 503;
  }
}
