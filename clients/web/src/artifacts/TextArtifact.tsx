/** A text, shown by its type: Markdown, a table, a page in a sandboxed frame, or code. */
import { Suspense, lazy, useState } from "react";
import type { JSX } from "react";

import { languageOf } from "../files/kinds";
import type { FileKind } from "../files/kinds";
import { CodeBlock } from "../markdown/CodeBlock";
import { Markdown } from "../markdown/Markdown";
import { Button } from "../ui/Button";
import styles from "./artifacts.module.css";
import { HtmlFrame } from "./HtmlFrame";

const TableArtifact = lazy(() => import("./table/TableArtifact"));

interface TextArtifactProps {
  text: string;
  kind: FileKind;
  filename: string;
  isGrowing: boolean;
}

export function TextArtifact({ text, kind, filename, isGrowing }: TextArtifactProps): JSX.Element {
  const [isSource, setSource] = useState(false);
  const hasView = kind === "markdown" || kind === "html" || kind === "table";
  return (
    <>
      {hasView && (
        <div className={styles.views} role="group" aria-label="View">
          <Button aria-pressed={!isSource} onClick={() => { setSource(false); }}>Preview</Button>
          <Button aria-pressed={isSource} onClick={() => { setSource(true); }}>Source</Button>
        </div>
      )}
      {hasView && !isSource ? <View text={text} kind={kind} isGrowing={isGrowing} /> : <CodeBlock code={text} language={sourceLanguage(kind, filename)} />}
    </>
  );
}

function View({ text, kind, isGrowing }: { text: string; kind: FileKind; isGrowing: boolean }): JSX.Element {
  switch (kind) {
    case "html":
      // A half-written page would run and be replaced with every token.
      return isGrowing ? <p className={styles.notice} aria-busy>The page can be opened when it is complete.</p> : <HtmlFrame html={text} />;
    case "table":
      return <Suspense fallback={<p className={styles.notice} aria-busy>Loading the table…</p>}><TableArtifact text={text} /></Suspense>;
    default:
      return <Markdown text={text} isGrowing={isGrowing} />;
  }
}

function sourceLanguage(kind: FileKind, filename: string): string {
  const byKind: Partial<Record<FileKind, string>> = { markdown: "markdown", html: "xml", json: "json" };
  return byKind[kind] ?? languageOf(filename);
}
