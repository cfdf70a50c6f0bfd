import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { javascript } from "@codemirror/lang-javascript";
import { python } from "@codemirror/lang-python";
import { HighlightStyle, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { Paper } from "@mantine/core";
import { useEffect, useRef } from "react";

const languages = { python: python, javascript: javascript, typescript: () => javascript({ typescript: true }) } as Record<string, (() => ReturnType<typeof python>) | undefined>;

// Colors that are readable in the light and the dark scheme.
const color = (name: string) => ({ color: `light-dark(var(--mantine-color-${name}-light-color), var(--mantine-color-${name}-4))` });
const colors = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword], ...color("violet") },
  { tag: [tags.string, tags.special(tags.string)], ...color("green") },
  { tag: [tags.number, tags.bool, tags.null], ...color("orange") },
  { tag: [tags.definition(tags.variableName), tags.definition(tags.function(tags.variableName)), tags.className, tags.typeName], ...color("blue") },
  { tag: tags.comment, ...color("gray") },
]);

interface Props {
  value: string;
  language: string;
  onChange: (v: string) => void;
  onSubmit: () => void;
}

/** Editor is a code editor. Tab indents; Escape and then Tab moves the focus. */
export function Editor({ value, language, onChange, onSubmit }: Props) {
  const at = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const now = useRef({ onChange, onSubmit });
  now.current = { onChange, onSubmit };
  useEffect(() => {
    const grammar = languages[language];
    const v = new EditorView({
      parent: at.current!,
      state: EditorState.create({
        doc: value,
        extensions: [
          lineNumbers(),
          history(),
          indentUnit.of("    "),
          syntaxHighlighting(colors),
          ...(grammar ? [grammar()] : []),
          keymap.of([{ key: "Mod-Enter", run: () => (now.current.onSubmit(), true) }, ...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ "aria-label": "Code", tabindex: "0" }),
          EditorView.updateListener.of((u) => u.docChanged && now.current.onChange(u.state.doc.toString())),
          EditorView.theme({ "&": { minHeight: "220px", maxHeight: "55vh" }, ".cm-gutters": { background: "transparent" } }),
        ],
      }),
    });
    view.current = v;
    return () => v.destroy();
    // A change of the language creates a new editor. The text is kept through onChange.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [language]);
  useEffect(() => {
    const v = view.current;
    if (v && v.state.doc.toString() !== value) v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: value } });
  }, [value]);
  return <Paper withBorder ref={at} />;
}
