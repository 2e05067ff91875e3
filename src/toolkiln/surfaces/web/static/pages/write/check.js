// The live check: the server's report on a source, shortly after the last change.
import { api } from "../../api.js";
import { useEffect, useReducer, useRef, useState } from "../../lib.js";
import { useLive } from "../../live.js";

const PAUSE = 300;

/* {answer, error, isCurrent, tools}: `tools` are those of the last valid source. */
export function useCheck(source, provider, helpers) {
  const [state, setState] = useState({ source: null, answer: null, error: null });
  const [turn, again] = useReducer((count) => count + 1, 0);
  const tools = useRef([]);
  useLive("again", again);
  useLive("catalog", again); // a free name may be taken now

  useEffect(() => {
    if (!source) {
      const nothing = (answer) => answer && { ...answer, tools: [], findings: [] };
      setState(({ answer }) => ({ source, answer: nothing(answer), error: null }));
      return undefined;
    }
    const control = new AbortController();
    const ask = () => api.post("/v1/schema", { source, provider }, { signal: control.signal }).then(
      (answer) => control.signal.aborted
        || setState({ source, error: null, answer: amended(answer, source, helpers) }),
      (error) => control.signal.aborted || setState((before) => ({ ...before, source, error })),
    );
    const timer = setTimeout(ask, state.answer ? PAUSE : 0);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [source, provider, helpers, turn]);

  if (state.answer?.tools.length) tools.current = state.answer.tools;
  return { ...state, isCurrent: state.source === source && !state.error, tools: tools.current };
}

/* Without findings about missing local modules: the server reads the source alone. */
function amended(answer, source, helpers) {
  if (!helpers?.length) return answer;
  const lines = source.split("\n");
  const names = helpers.map((file) => file.split("/")[0].replace(/\.py$/, ""));
  const isOfHelper = ({ rule, line }) => (
    ["unlisted-import", "missing-helper"].includes(rule)
    && names.some((name) => lines[line - 1]?.split(/\W+/).includes(name)));
  return { ...answer, findings: answer.findings.filter((one) => !isOfHelper(one)) };
}
