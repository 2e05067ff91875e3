// Statistics of the last hour's calls: results and durations, as charts and as tables.
import { api } from "../../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../../lib.js";
import { useLive } from "../../live.js";
import { Duration, useRequest } from "../../parts.js";

const REFRESH_MS = 2_500;
const MINUTE_MS = 60_000;
const HEIGHT = 150;
const AT = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DARK = matchMedia("(prefers-color-scheme: dark)");
/* From the top of a bar to its bottom, each with its color token. */
const GROUPS = [
  { title: "failed", color: "--bad", of: ["failed", "timeout", "killed", "unavailable"] },
  { title: "refused", color: "--warn", of: ["invalid", "denied"] },
  { title: "cancelled", color: "--strong-line", of: ["cancelled"] },
  { title: "done", color: "--ok", of: ["ok"] },
];
const FROM_FOOT = [...GROUPS].reverse();

export function Charts() {
  const request = useRequest((signal) => api.get("/v1/statistics", null, { signal }), []);
  const isStale = useRef(false);
  useLive("run", ({ duration }) => { isStale.current ||= duration !== null; });
  useLive("again", request.again);
  useEffect(() => {
    let ticks = 0;
    const timer = setInterval(() => {
      ticks += 1;
      // The hour moves on every minute, even without calls.
      if (document.hidden || !(isStale.current || ticks % (MINUTE_MS / REFRESH_MS) === 0)) return;
      isStale.current = false;
      request.again();
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const found = request.value;
  const sums = useMemo(() => found && summed(found.minutes), [found]);
  return html`
    <section class="charts" aria-label="The last hour" tabindex="0">
      <${Figure} title="Calls per minute" minutes=${found?.minutes} draw=${drawOutcomes}>
        ${sums && html`<${Counts} sums=${sums} />`}</${Figure}>
      <${Figure} title="Duration" minutes=${found?.minutes} draw=${drawLatency}>
        ${sums && html`<${Times} sums=${sums} />`}</${Figure}>
    </section>
    <${InWords} minutes=${found?.minutes ?? []} since=${found?.complete_since ?? 0} />`;
}

function Counts({ sums }) {
  if (!sums.total) return "No calls in the last hour";
  return html`<strong>${sums.total.toLocaleString()}</strong> in the last hour:
    ${sums.groups.filter(({ count }) => count).map(({ title, count }, at) => html`
      ${at ? ", " : " "}
      <span class="key" data-of=${title}></span>${count.toLocaleString()} ${title}`)}`;
}

function Times({ sums }) {
  if (!sums.total) return "No call ended in the last hour";
  return html`
    <span class="key" data-of="median"></span>p50
    ${" "}<strong><${Duration} seconds=${sums.median} /></strong>,${" "}
    <span class="key" data-of="slow"></span>p95
    ${" "}<strong><${Duration} seconds=${sums.slow} /></strong> in the worst minute`;
}

/* A chart with its caption; its space is reserved from the start. */
function Figure({ title, minutes, draw, children }) {
  const box = useRef(null);
  const isDark = useDark();
  useEffect(() => {
    if (!minutes) return undefined;
    let chart = null;
    let isWanted = true;
    const fit = new ResizeObserver(() =>
      chart?.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    plotter().then((uPlot) => {
      if (!isWanted) return;
      chart = draw(uPlot, minutes, box.current);
      fit.observe(box.current);
    });
    return () => {
      isWanted = false;
      fit.disconnect();
      chart?.destroy();
    };
  }, [minutes, isDark]);
  return html`
    <figure class="panel chart">
      <h2>${title}</h2>
      <div class="chart-box" ref=${box} aria-hidden="true"></div>
      <figcaption>${children}</figcaption>
    </figure>`;
}

function useDark() {
  const [isDark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const look = () => setDark(DARK.matches);
    DARK.addEventListener("change", look);
    return () => DARK.removeEventListener("change", look);
  }, []);
  return isDark;
}

let loading = null;

/* Load uPlot and its style sheet when they are needed. */
function plotter() {
  loading ??= Promise.all([import("../../vendor/uplot.js"), new Promise((resolve) => {
    const href = new URL("../../vendor/uplot.css", import.meta.url);
    document.head.append(Object.assign(document.createElement("link"), {
      rel: "stylesheet", href, onload: resolve, onerror: resolve,
    }));
  })]).then(([module]) => module.default);
  return loading;
}

/* The value of a color token, for a canvas. */
function colorOf(token, box) {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  box.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function frame(box) {
  const line = {
    stroke: colorOf("--muted", box), grid: { stroke: colorOf("--line", box), width: 1 },
    ticks: { show: false }, font: "12px system-ui, sans-serif",
  };
  const at = (_, moments) => moments.map((moment) => AT.format(moment * 1000));
  return {
    width: box.clientWidth, height: HEIGHT, padding: [8, 8, 0, 0],
    legend: { show: false }, cursor: { show: false },
    scales: { x: { range: (_, first, last) => [first, last + 60] } },
    axes: [
      { ...line, grid: { show: false }, size: 28, space: 70, values: at },
      { ...line, size: 58 },
    ],
  };
}

function drawOutcomes(uPlot, minutes, box) {
  const counts = GROUPS.map(({ of }) => minutes.map((minute) => countOf(minute, of)));
  // Stacked: each series includes those below it, and the tallest is drawn first.
  const stacked = counts.map((_, at) => minutes.map((__, minute) =>
    counts.slice(at).reduce((sum, some) => sum + some[minute], 0)));
  const options = frame(box);
  options.scales.y = { range: (_, _low, high) => [0, Math.max(4, high)] };
  options.axes[1].incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000];
  options.series = [{}, ...GROUPS.map(({ color }) => {
    const fill = colorOf(color, box);
    const paths = uPlot.paths.bars({ size: [.75, 14], align: 1 });
    return { fill, stroke: fill, width: 0, points: { show: false }, paths };
  })];
  return new uPlot(options, [minutes.map(({ at }) => at), ...stacked], box);
}

function drawLatency(uPlot, minutes, box) {
  const options = frame(box);
  const longest = Math.max(.1, ...minutes.map(({ slow }) => slow ?? 0));
  const shortest = Math.min(.01, ...minutes.map(({ median }) => median || .01));
  // A logarithmic scale shows both short and long calls.
  options.scales.y = { distr: 3, range: powers(shortest, longest) };
  options.axes[1].splits = (_, __, low, high) => {
    const [first, last] = [low, high].map((one) => Math.round(Math.log10(one)));
    return Array.from({ length: last - first + 1 }, (___, at) => 10 ** (first + at));
  };
  options.axes[1].filter = (_, ticks) => ticks;
  options.axes[1].values = (_, ticks) => ticks.map(short);
  const line = (token, dash) => {
    const stroke = colorOf(token, box);
    const points = { show: true, size: 5, fill: stroke };
    return { stroke, width: 2, dash, points, spanGaps: false };
  };
  options.series = [{}, line("--accent", [5, 4]), line("--info")];
  const series = ["at", "slow", "median"]
    .map((name) => minutes.map((minute) => minute[name] || null));
  return new uPlot(options, series, box);
}

function powers(low, high) {
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.001))];
}

function short(seconds) {
  if (seconds < .001) return `${(seconds * 1e6).toFixed(0)} µs`;
  return seconds < 1 ? `${(seconds * 1000).toFixed(0)} ms` : `${seconds.toLocaleString()} s`;
}

function countOf({ outcomes }, of) {
  return of.reduce((sum, one) => sum + (outcomes[one] ?? 0), 0);
}

function summed(minutes) {
  const groups = FROM_FOOT.map(({ title, of }) => ({
    title, count: minutes.reduce((sum, minute) => sum + countOf(minute, of), 0),
  }));
  const busy = minutes.filter(({ median }) => median !== null);
  const medians = busy.map(({ median }) => median).sort((one, other) => one - other);
  return {
    groups, total: groups.reduce((sum, { count }) => sum + count, 0),
    median: medians[Math.floor(medians.length / 2)],
    slow: Math.max(...busy.map(({ slow }) => slow)),
  };
}

/* The same figures as a table, for screen readers and for exact values. */
function InWords({ minutes, since }) {
  const some = minutes.filter(({ outcomes }) => Object.keys(outcomes).length).reverse();
  const isPartial = since > minutes[0]?.at + 1;
  return html`
    <details class="in-words">
      <summary>The last hour in figures</summary>
      ${!some.length && html`<p class="hint">No call ended in the last hour.</p>`}
      ${isPartial && html`<p class="hint">Complete since ${AT.format(since * 1000)}; of what began
        earlier only a part is counted.</p>`}
      <div class="scrolled" tabindex="0" role="region" aria-label="Figures"><table>
        <thead><tr><th>Minute</th>
          ${FROM_FOOT.map(({ title }) => html`<th class="number">${title}</th>`)}
          <th class="number">p50</th><th class="number">p95</th></tr></thead>
        <tbody>${some.map((minute) => html`
          <tr key=${minute.at}><td>${AT.format(minute.at * 1000)}</td>
            ${FROM_FOOT.map(({ of }) => html`<td class="number">${countOf(minute, of)}</td>`)}
            <td class="number"><${Duration} seconds=${minute.median} /></td>
            <td class="number"><${Duration} seconds=${minute.slow} /></td></tr>`)}</tbody>
      </table></div>
    </details>`;
}
