// The editor: CodeMirror for Python, loaded when it is first shown. It lives in a shadow tree,
// where its styles need no exception from the page's policy.
import { html, useEffect, useRef, useState } from "./lib.js";
import { Busy } from "./parts.js";

const LEAVING = "Press Escape, then Tab to leave the editor.";
const dark = matchMedia("(prefers-color-scheme: dark)");
let loading;

/* `control.current` gets {focus(), goTo(line, column), insert(repair)} as soon as there is an
   editor. */
export function Editor({ value, onChange, findings = [], readOnly = false, label, control }) {
  const host = useRef(null);
  const editor = useRef(null);
  const [state, setState] = useState("loading");
  const change = useRef(null);
  const reported = useRef(new Set());
  change.current = (text) => {
    reported.current.add(text);
    onChange(text);
  };

  useEffect(() => {
    let isWanted = true;
    loading ??= import("./vendor/codemirror.js");
    loading.then((mirror) => {
      if (!isWanted) return;
      editor.current = made(mirror, host.current, { value, label, readOnly, change });
      if (control) control.current = controlOf(mirror, editor.current.view);
      setState("ready");
    }, () => isWanted && setState("plain"));
    return () => {
      isWanted = false;
      editor.current?.end();
      editor.current = null;
      if (control) control.current = null;
    };
  }, [label, readOnly]);

  useEffect(() => {
    const view = editor.current?.view;
    const text = view?.state.doc.toString();
    if (text === value) reported.current.clear();
    // An older text that comes back after the next key press must not undo it.
    if (!view || text === value || reported.current.has(value)) return;
    view.dispatch({ changes: { from: 0, to: text.length, insert: value } });
  }, [value, state]);

  useEffect(() => {
    const now = editor.current;
    if (!now) return;
    const found = marks(now.view.state.doc, findings);
    now.view.dispatch(now.mirror.setDiagnostics(now.view.state, found));
  }, [findings, state]);

  if (state === "plain") {
    return html`<textarea class="editor" aria-label=${label} value=${value} readonly=${readOnly}
      spellcheck=${false} onInput=${(event) => onChange(event.target.value)} />`;
  }
  return html`
    <div class="editor" ref=${host}></div>
    ${state === "loading" && html`<${Busy} label="Loading the editor" />`}
    ${state === "ready" && !readOnly && html`<p class="hint editor-hint">
      <kbd>Esc</kbd> then <kbd>Tab</kbd> leaves the editor. <kbd>F8</kbd> goes to the next
      finding.</p>`}`;
}

function made(mirror, host, { value, label, readOnly, change }) {
  const { Compartment, EditorState, EditorView } = mirror;
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const shade = new Compartment();
  const listener = EditorView.updateListener.of((update) => {
    if (update.docChanged) change.current(update.state.doc.toString());
  });
  const attributes = {
    "aria-label": readOnly ? label : `${label}. ${LEAVING}`, spellcheck: "false",
  };
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: value,
      extensions: [
        ...basics(mirror), colors(mirror), typingOver(mirror), leaving(mirror), listener,
        shade.of(EditorView.darkTheme.of(dark.matches)),
        EditorView.contentAttributes.of(attributes), EditorState.readOnly.of(readOnly),
      ],
    }),
  });
  const follow = () => view.dispatch({
    effects: shade.reconfigure(EditorView.darkTheme.of(dark.matches)),
  });
  dark.addEventListener("change", follow);
  const end = () => {
    dark.removeEventListener("change", follow);
    view.destroy();
  };
  return { mirror, view, end };
}

function basics(mirror) {
  const { keymap } = mirror;
  return [
    mirror.lineNumbers(), mirror.lintGutter(), mirror.history(), mirror.drawSelection(),
    mirror.indentOnInput(), mirror.bracketMatching(), mirror.closeBrackets(),
    mirror.highlightActiveLine(), mirror.highlightActiveLineGutter(), mirror.python(),
    mirror.indentUnit.of("    "), mirror.EditorState.tabSize.of(4),
    keymap.of([
      ...mirror.closeBracketsKeymap, ...mirror.defaultKeymap, ...mirror.searchKeymap,
      ...mirror.historyKeymap, ...mirror.lintKeymap, mirror.indentWithTab,
    ]),
  ];
}

/* Tab indents, but leaves after Escape: until another key, not only for CodeMirror's two
   seconds. */
function leaving({ EditorView }) {
  return EditorView.domEventHandlers({
    focus: (_, view) => view.setTabFocusMode(false),
    keydown(event, view) {
      if (event.key === "Escape") view.setTabFocusMode(true);
      else if (!["Tab", "Shift"].includes(event.key)) view.setTabFocusMode(false);
    },
  });
}

/* Left to itself, a browser carries the look of a selection over to what is typed in its place,
   as a style that the page's policy forbids. */
function typingOver({ EditorView }) {
  return EditorView.domEventHandlers({
    beforeinput(event, view) {
      const { from, to, empty } = view.state.selection.main;
      const isTyped = event.inputType === "insertText" && event.data && !event.isComposing;
      if (!isTyped || empty) return false;
      event.preventDefault();
      const typed = () => view.state.update(
        view.state.replaceSelection(event.data), { userEvent: "input.type" },
      );
      const isHandled = (handle) => handle(view, from, to, event.data, typed);
      if (!view.state.facet(EditorView.inputHandler).some(isHandled)) view.dispatch(typed());
      return true;
    },
  });
}

function controlOf({ EditorView }, view) {
  const select = (anchor, head = anchor) => {
    const effects = EditorView.scrollIntoView(anchor, { y: "center" });
    view.dispatch({ selection: { anchor, head }, effects });
    view.focus();
  };
  return {
    focus: () => view.focus(),
    goTo: (line, column) => select(place(view.state.doc, line, column)),
    insert: ({ line, column, text, select: chosen }) => {
      const { doc } = view.state;
      const isBehind = line > doc.lines; // the last line has no end yet
      const from = isBehind ? doc.length : place(doc, line, column);
      const before = isBehind ? "\n" : "";
      view.dispatch({ changes: { from, insert: before + text }, userEvent: "input.repair" });
      const [start, end] = (chosen ?? [text.length, text.length]).map((at) => units(text, at));
      select(from + before.length + start, from + before.length + end);
    },
  };
}

/* A place in the document: columns count characters, and begin with 1. */
function place(doc, line, column = 1) {
  const { from, text } = doc.line(Math.min(Math.max(line, 1), doc.lines));
  return from + units(text, (column ?? 1) - 1);
}

/* How many units of JavaScript's the first characters of a text are. */
function units(text, characters) {
  return [...text].slice(0, characters).join("").length;
}

function marks(doc, findings) {
  return findings.map(({ line, column, severity, rule, message, fix }) => {
    const { from, to, text } = doc.line(Math.min(Math.max(line, 1), doc.lines));
    const start = column ? place(doc, line, column) : from + text.length - text.trimStart().length;
    return {
      from: Math.min(start, to), to, severity, source: rule,
      message: fix ? `${message}: ${fix}` : message,
    };
  });
}

function colors({ EditorView, HighlightStyle, syntaxHighlighting, tags }) {
  const selected = {
    backgroundColor: "color-mix(in srgb, var(--accent) 25%, transparent) !important",
  };
  const theme = EditorView.theme({
    "&": {
      backgroundColor: "var(--panel)", color: "var(--text)", fontSize: "13.5px", height: "100%",
    },
    "&.cm-focused": { outline: "none" }, // the page draws the outline around the editor
    ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
    ".cm-content": { caretColor: "var(--text)", padding: ".5rem 0" },
    ".cm-cursor": { borderLeftColor: "var(--text)", borderLeftWidth: "2px" },
    ".cm-gutters": { backgroundColor: "var(--panel)", border: "0", color: "var(--muted)" },
    ".cm-activeLine, .cm-activeLineGutter": {
      backgroundColor: "color-mix(in srgb, var(--soft) 60%, transparent)",
    },
    ".cm-selectionBackground": selected,
    "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": selected,
    "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--ok-soft)" },
    ".cm-tooltip": {
      backgroundColor: "var(--raised)", border: "1px solid var(--line)",
      borderRadius: "var(--small-radius)",
      boxShadow: "var(--deep-shadow)", color: "var(--text)", maxWidth: "min(34rem, 90vw)",
    },
    ".cm-diagnosticSource": { color: "var(--muted)", opacity: "1" },
    ".cm-panels": { backgroundColor: "var(--soft)", color: "var(--text)" },
  });
  const style = HighlightStyle.define([
    { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--accent)" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--ok)" },
    { tag: [tags.comment, tags.meta], color: "var(--muted)", fontStyle: "italic" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--info)" },
    {
      tag: [tags.definition(tags.function(tags.variableName)), tags.definition(tags.className)],
      fontWeight: "600",
    },
    { tag: [tags.className, tags.typeName], color: "var(--info)" },
    { tag: tags.invalid, color: "var(--bad)" },
  ]);
  return [theme, syntaxHighlighting(style)];
}
