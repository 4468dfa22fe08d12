// The field for SQL: CodeMirror in a shadow root, where its styles are constructed sheets, which the pages' own policy allows.
import { html, useEffect, useRef } from "../../kit.js";
import {
  Compartment, EditorState, EditorView, HighlightStyle, SQLDialect, StandardSQL, acceptCompletion, autocompletion, bracketMatching, closeBrackets, closeBracketsKeymap, completionKeymap,
  defaultKeymap, drawSelection, history, historyKeymap, keymap, sql, syntaxHighlighting, tags,
} from "../../../vendor/codemirror/codemirror.js";
import { completions } from "./schema.js";

// ClickHouse's own words beside those of SQL.
const WORDS = "prewhere final sample array join global any asof semi anti format settings limit offset qualify ilike interval with totals rollup cube fill step";
const FUNCTIONS = `count sum avg min max any argMin argMax quantile uniq groupArray countIf sumIf avgIf toStartOfHour toStartOfDay toStartOfMinute toDate toDateTime now dateDiff
  round toString toFloat64 toUInt64 if multiIf ifNull coalesce arrayJoin arrayMap length has mapKeys mapValues concat lower upper startsWith numbers`;
const CLICKHOUSE = SQLDialect.define({ ...StandardSQL.spec, keywords: `${StandardSQL.spec.keywords} ${WORDS}`, builtin: FUNCTIONS.replace(/\s+/g, " "), backslashEscapes: true });

const COLOURS = syntaxHighlighting(HighlightStyle.define([
  { tag: tags.keyword, color: "var(--c4)" }, { tag: [tags.string, tags.special(tags.string)], color: "var(--c3)" }, { tag: [tags.number, tags.bool, tags.null], color: "var(--c2)" },
  { tag: tags.standard(tags.name), color: "var(--c1)" }, { tag: tags.typeName, color: "var(--c6)" }, { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
]));
const LOOK = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--ground)", border: "1px solid var(--line-strong)", borderRadius: "6px", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", minHeight: "9rem", maxHeight: "50vh", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 4px" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-ground) !important" },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-ground)", outline: "1px solid var(--line-strong)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", border: "1px solid var(--line-strong)", borderRadius: "6px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12.5px", maxHeight: "16rem" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent) !important", color: "var(--on-accent) !important" },
});

const languageOf = (tables) => sql({ dialect: CLICKHOUSE, schema: completions(tables || []), upperCaseKeywords: true });

// first: the text at its beginning; setText: what it is from then on. api (a ref) gets {insert(text, whole)}: at the cursor, or in place of all.
// run: Ctrl or Cmd and Enter.
export function Editor({ first, setText, tables, run, api }) {
  const host = useRef(null);
  const view = useRef(null);
  const language = useRef(null);
  const on = useRef({});
  on.current = { setText, run };
  useEffect(() => {
    const root = host.current.shadowRoot || host.current.attachShadow({ mode: "open", delegatesFocus: true });
    language.current = new Compartment();
    const extensions = [
      history(), drawSelection(), bracketMatching(), closeBrackets(), autocompletion(), EditorView.lineWrapping, LOOK, COLOURS, language.current.of(languageOf(tables)),
      EditorView.contentAttributes.of({ "aria-label": "SQL", spellcheck: "false" }),
      keymap.of([{ key: "Mod-Enter", run: () => { on.current.run(); return true; } }, { key: "Tab", run: acceptCompletion }, ...closeBracketsKeymap, ...completionKeymap, ...defaultKeymap.filter((one) => one.key !== "Mod-Enter"), ...historyKeymap]),
      EditorView.updateListener.of((update) => {  if (update.docChanged) on.current.setText(update.state.doc.toString()); }),
    ];
    const made = new EditorView({ state: EditorState.create({ doc: first, extensions }), parent: root, root });
    view.current = made;
    api.current = {
      insert: (added, whole) => {
        const { from, to } = whole ? { from: 0, to: made.state.doc.length } : made.state.selection.main;
        made.dispatch({ changes: { from, to, insert: added }, selection: { anchor: from + added.length } });
        made.focus();
      },
    };
    return () => { made.destroy(); view.current = null; };
  }, []);
  useEffect(() => { if (tables) view.current.dispatch({ effects: language.current.reconfigure(languageOf(tables)) }); }, [tables]);
  return html`<div class="sql-editor" ref=${host} data-search></div>`;
}
