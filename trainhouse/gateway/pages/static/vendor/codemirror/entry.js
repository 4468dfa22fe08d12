export { EditorState, Compartment } from "@codemirror/state";
export { EditorView, keymap, drawSelection, placeholder } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { autocompletion, completionKeymap, closeBrackets, closeBracketsKeymap, acceptCompletion } from "@codemirror/autocomplete";
export { HighlightStyle, syntaxHighlighting, bracketMatching } from "@codemirror/language";
export { tags } from "@lezer/highlight";
export { sql, SQLDialect, StandardSQL } from "@codemirror/lang-sql";
