// Selection and order of the catalog's cards: pure functions without elements.

const LEAST = 0.2; // share of the best score, or confidence, below which hits are noise

export const FILTERS = [
  { id: "read_only", title: "Read-only", fits: (tool) => tool.read_only },
  { id: "core", title: "Core", fits: (tool) => tool.is_core },
  {
    id: "rights", title: "Requests permissions",
    fits: ({ rights }) =>
      !rights.sandbox || rights.workspace || rights.network.length || rights.secrets.length,
  },
  { id: "not_strict", title: "Not strict", fits: (tool) => tool.health !== "STRICT_COMPLIANT" },
  { id: "other", title: "Prompts and resources", fits: (tool) => tool.role !== "tool" },
  { id: "off", title: "Disabled", fits: (tool) => tool.state === "disabled" },
  { id: "proposed", title: "Proposed", fits: (tool) => tool.has_proposal },
];

/* The tools that pass all filters. */
export function chosen(tools, { toolkit, only, hidden }) {
  const filters = FILTERS.filter(({ id }) => only.has(id));
  return tools.filter((tool) => (hidden || tool.is_shown) && (!toolkit || tool.toolkit === toolkit)
    && filters.every(({ fits }) => fits(tool)));
}

/* Groups by toolkit, in the order of the toolkits, then tools of none; `all` determines which are
   core. */
export function grouped(toolkits, tools, all) {
  const members = new Map();
  for (const tool of tools) {
    const known = members.get(tool.toolkit);
    if (known) known.push(tool);
    else members.set(tool.toolkit, [tool]);
  }
  const core = new Map(
    all.filter((tool) => tool.toolkit && tool.is_core).map((tool) => [tool.toolkit, tool.name]),
  );
  const groups = toolkits.filter(({ name }) => members.has(name))
    .map((kit) => ({
      key: kit.name, head: true, kit, core: core.get(kit.name), items: members.get(kit.name),
    }));
  if (members.has(null)) {
    groups.push({ key: "", head: groups.length > 0, items: members.get(null) });
  }
  return { groups, count: tools.length };
}

/* Among some tools those that a search found, best first, each with the reason.

   Whose name has what was typed comes first: a person who types half a name means that. The
   search knows neither what is switched off nor prompts; those are found by their words. */
export function foundIn(tools, { text, answer }) {
  const words = plain(text).split(" ");
  const named = plain(text);
  const hits = new Map((answer?.items ?? []).map((hit) => [hit.name, hit]));
  const best = answer?.items[0]?.score ?? 0;
  const reasons = new Map();
  const ranked = [];
  for (const tool of tools) {
    const hit = hits.get(tool.name);
    const { name, text: all } = textOf(tool);
    const hasName = name.includes(named);
    const isKnown = tool.state === "served" && tool.role === "tool" && answer;
    const hasWords = !isKnown && words.every((word) => all.includes(word));
    const isHit = hit && hit.score >= LEAST * best;
    if (!hasName && !hasWords && !isHit) continue;
    const rank = hasName ? 2 + (hit?.score ?? 0) / (best || 1) : isHit ? hit.score / best : 0;
    const reason = hasName ? "in its name" : hasWords ? "in its description" : "";
    reasons.set(tool.name, {
      text: reason, words: hit?.words ?? [], parts: hit?.parts ?? {}, clause: hit?.clause,
    });
    ranked.push({ tool, rank, isChance: !hasName && !hasWords });
  }
  const isChance = (answer?.confidence ?? 1) < LEAST && ranked.some((one) => !one.isChance);
  const kept = isChance ? ranked.filter((one) => !one.isChance) : ranked;
  kept.sort((one, other) => other.rank - one.rank);
  return { items: kept.map(({ tool }) => tool), reasons };
}

const texts = new WeakMap();

/* The searched text, built once per tool: each key press searches all of them. */
function textOf(tool) {
  if (!texts.has(tool)) {
    const name = plain(`${tool.title} ${tool.name}`);
    texts.set(tool, { name, text: `${name} ${plain(tool.summary)}` });
  }
  return texts.get(tool);
}

function plain(text) {
  return text.toLowerCase().replace(/[\s_-]+/g, " ").trim();
}
