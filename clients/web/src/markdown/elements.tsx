/** How the elements of Markdown look here: links and images that are safe, code with colours, tables that scroll. */
import type { Element } from "hast";
import { use } from "react";
import type { JSX, ReactNode } from "react";
import type { Components } from "react-markdown";

import { FileImage } from "../files/FileImage";
import { FileLink } from "../files/FileLink";
import { hostOf, normalizeAddress, readImage, readLink } from "./addresses";
import { CodeBlock } from "./CodeBlock";
import styles from "./Markdown.module.css";
import { ReferencesContext, findFile } from "./references";

export function WebLink({ href, children }: { href: string; children: ReactNode }): JSX.Element {
  return (
    <a href={href} target="_blank" rel="noopener noreferrer" referrerPolicy="no-referrer">
      {children}
    </a>
  );
}

function Link({ href, children }: { href?: string | undefined; children?: ReactNode }): JSX.Element {
  const references = use(ReferencesContext);
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
  const file = target.kind === "none" ? undefined : findFile(references, target);
  return file === undefined ? <span>{children}</span> : <FileLink file={file}>{children}</FileLink>;
}

function Image({ src, alt = "" }: { src?: string | undefined; alt?: string | undefined }): JSX.Element {
  const references = use(ReferencesContext);
  const source = readImage(src);
  switch (source.kind) {
    case "data":
      return <img className={styles.image} src={source.src} alt={alt} />;
    case "web":
      return <WebLink href={source.href}>Image{alt === "" ? "" : `: ${alt}`} ({hostOf(source.href)})</WebLink>;
    case "file":
    case "name": {
      const file = findFile(references, source);
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
      <table>{children}</table>
    </div>
  );
}

function TaskMark({ checked }: { checked?: boolean | undefined }): JSX.Element {
  return <span role="img" aria-label={checked === true ? "done" : "open"}>{checked === true ? "☑" : "☐"}</span>;
}

/** The page has its own headings above those of an answer, so these begin two levels lower. */
export const ELEMENTS: Components = {
  a: ({ href, children }) => <Link href={href}>{children}</Link>,
  img: ({ src, alt }) => <Image src={typeof src === "string" ? src : undefined} alt={alt} />,
  pre: ({ node }) => <Fence node={node} />,
  table: ({ children }) => <Table>{children}</Table>,
  input: ({ checked }) => <TaskMark checked={checked} />,
  h1: ({ children }) => <h3>{children}</h3>,
  h2: ({ children }) => <h4>{children}</h4>,
  h3: ({ children }) => <h5>{children}</h5>,
  h4: ({ children }) => <h6>{children}</h6>,
  h5: ({ children }) => <h6>{children}</h6>,
};
