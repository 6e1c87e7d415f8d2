/** How Markdown elements are rendered: safe links and images, highlighted code, scrollable tables. */
import type { Element } from "hast";
import { createElement, use } from "react";
import type { JSX, MouseEvent, ReactNode } from "react";
import type { Components, ExtraProps } from "react-markdown";

import { FileImage } from "../files/FileImage";
import { FileLink } from "../files/FileLink";
import { hostOf, normalizeAddress, readImage, readLink } from "./addresses";
import { CodeBlock } from "./CodeBlock";
import styles from "./Markdown.module.css";
import { EarlierFilesContext, ReferencesContext, findFile } from "./references";

export function WebLink({ href, children }: { href: string; children: ReactNode }): JSX.Element {
  return (
    <a href={href} target="_blank" rel="noopener noreferrer" referrerPolicy="no-referrer">
      {children}
    </a>
  );
}

/** Fragments of footnotes and their references. The fragment of the page itself names the conversation. */
const FOOTNOTE_PLACE = /^#user-content-fn(?:ref)?-/;

/** Moves from a footnote reference to the footnote and back, within the same text. */
function FootnoteLink({ place, target, children }: { place: string | undefined; target: string; children: ReactNode }): JSX.Element {
  const go = (event: MouseEvent): void => {
    const text = event.currentTarget.closest("[data-markdown]");
    const found = [...(text?.querySelectorAll<HTMLElement>("[data-place]") ?? [])].find((each) => each.dataset["place"] === target);
    found?.scrollIntoView({ block: "nearest" });
    found?.focus({ preventScroll: true });
  };
  const number = typeof children === "string" ? children : "";
  const label = target.startsWith("user-content-fnref") ? "Back to the text" : `Footnote ${number}`;
  return <button type="button" className={styles.footnote} aria-label={label} data-place={place} onClick={go}>{children}</button>;
}

function Link({ href, id, children }: { href?: string | undefined; id?: string | undefined; children?: ReactNode }): JSX.Element {
  const references = use(ReferencesContext);
  const earlier = use(EarlierFilesContext);
  if (href !== undefined && FOOTNOTE_PLACE.test(href)) return <FootnoteLink place={id} target={decodeURIComponent(href.slice(1))}>{children}</FootnoteLink>;
  const target = readLink(href);
  if (target.kind === "web") {
    const cited = references.citations.get(normalizeAddress(target.href));
    if (cited === undefined) return <WebLink href={target.href}>{children}</WebLink>;
    return (
      <a className={styles.cite} href={target.href} target="_blank" rel="noopener noreferrer" title={`${cited.title} (${hostOf(cited.url)})`}>
        <span className="visually-hidden">Source {cited.sid}: {cited.title}</span>
        <span aria-hidden>{cited.sid}</span>
      </a>
    );
  }
  const file = target.kind === "none" ? undefined : (findFile(references.files, target) ?? findFile(earlier, target));
  return file === undefined ? <span>{children}</span> : <FileLink file={file}>{children}</FileLink>;
}

function Image({ src, alt = "" }: { src?: string | undefined; alt?: string | undefined }): JSX.Element {
  const references = use(ReferencesContext);
  const earlier = use(EarlierFilesContext);
  const source = readImage(src);
  switch (source.kind) {
    case "data":
      return <img className={styles.image} src={source.src} alt={alt} />;
    case "web":
      return <WebLink href={source.href}>Image{alt === "" ? "" : `: ${alt}`} ({hostOf(source.href)})</WebLink>;
    case "file":
    case "name": {
      const file = findFile(references.files, source) ?? findFile(earlier, source);
      return file === undefined ? <span>{alt}</span> : <FileImage file={file} alt={alt} />;
    }
    case "none":
      return <span>{alt}</span>;
  }
}

function Fence({ node }: { node?: Element | undefined }): JSX.Element {
  const code = node?.children.find((child): child is Element => child.type === "element" && child.tagName === "code");
  const text = code?.children.map((child) => (child.type === "text" ? child.value : "")).join("") ?? "";
  const names = code?.properties.className;
  const marked = Array.isArray(names) ? names.map(String).find((name) => name.startsWith("language-")) : undefined;
  return <CodeBlock code={text.replace(/\n$/, "")} language={marked?.slice("language-".length).toLowerCase()} />;
}

function Table({ children }: { children?: ReactNode }): JSX.Element {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus
    <div className={styles.scroll} role="region" aria-label="Table" tabIndex={0}>
      <table dir="auto">{children}</table>
    </div>
  );
}

function TaskMark({ checked }: { checked?: boolean | undefined }): JSX.Element {
  return <span role="img" aria-label={checked === true ? "done" : "open"}>{checked === true ? "☑" : "☐"}</span>;
}

type Drawn<Name extends keyof JSX.IntrinsicElements> = (props: JSX.IntrinsicElements[Name] & ExtraProps) => JSX.Element;

/** Each paragraph, list and table has the direction of its own first letter. */
function autoDirected<Name extends keyof JSX.IntrinsicElements>(tag: "p" | "ul" | "ol" | "blockquote" | "h3" | "h4" | "h5" | "h6"): Drawn<Name> {
  // Ids, such as that of the footnotes heading, would repeat in every text.
  return function AutoDirected({ node: _, id: __, ...rest }) {
    return createElement(tag, { dir: "auto", ...rest });
  };
}

function ListItem({ node: _, id, ...rest }: JSX.IntrinsicElements["li"] & ExtraProps): JSX.Element {
  // Only footnotes have ids, which repeat in every text.
  return id === undefined ? <li {...rest} /> : <li {...rest} data-place={id} tabIndex={-1} />;
}

/** The page has its own headings above those of an answer, so these begin two levels lower. */
export const ELEMENTS: Components = {
  a: ({ href, id, children }) => <Link href={href} id={id}>{children}</Link>,
  p: autoDirected<"p">("p"),
  ul: autoDirected<"ul">("ul"),
  ol: autoDirected<"ol">("ol"),
  li: ListItem,
  blockquote: autoDirected<"blockquote">("blockquote"),
  img: ({ src, alt }) => <Image src={typeof src === "string" ? src : undefined} alt={alt} />,
  pre: ({ node }) => <Fence node={node} />,
  table: ({ children }) => <Table>{children}</Table>,
  input: ({ checked }) => <TaskMark checked={checked} />,
  h1: autoDirected<"h1">("h3"),
  h2: autoDirected<"h2">("h4"),
  h3: autoDirected<"h3">("h5"),
  h4: autoDirected<"h4">("h6"),
  h5: autoDirected<"h5">("h6"),
  h6: autoDirected<"h6">("h6"),
};
