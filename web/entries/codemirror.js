// The editor, with what it needs for Python and nothing else.
export { Compartment, EditorState } from "@codemirror/state";
export {
  EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers,
} from "@codemirror/view";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export {
  HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting,
} from "@codemirror/language";
export { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
export { searchKeymap } from "@codemirror/search";
export { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
export { python } from "@codemirror/lang-python";
export { tags } from "@lezer/highlight";
