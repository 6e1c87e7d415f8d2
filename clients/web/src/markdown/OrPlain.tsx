/** A text as it was written, where it can't be drawn: an answer that nests thousands deep is no reason to lose the page. */
import { Component } from "react";
import type { JSX, ReactNode } from "react";

import { showOverrides } from "../ui/unseen";
import styles from "./Markdown.module.css";

interface OrPlainProps {
  text: string;
  children: ReactNode;
}

interface OrPlainState {
  /** The text that was tried. */
  text: string;
  isBroken: boolean;
}

export class OrPlain extends Component<OrPlainProps, OrPlainState> {
  override state: OrPlainState = { text: this.props.text, isBroken: false };

  static getDerivedStateFromError(): Partial<OrPlainState> {
    return { isBroken: true };
  }

  /** Another text is tried again. */
  static getDerivedStateFromProps({ text }: OrPlainProps, before: OrPlainState): OrPlainState | null {
    return text === before.text ? null : { text, isBroken: false };
  }

  override render(): ReactNode {
    return this.state.isBroken ? <Plain text={this.props.text} /> : this.props.children;
  }
}

export function Plain({ text }: { text: string }): JSX.Element {
  return <p className={styles.plain} dir="auto">{showOverrides(text)}</p>;
}
