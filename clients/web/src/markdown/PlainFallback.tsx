/** Falls back to plain text if rendering fails: an answer nested thousands of levels deep must not break the page. */
import { Component } from "react";
import type { JSX, ReactNode } from "react";

import { escapeDirectionOverrides } from "../ui/invisibleCharacters";
import styles from "./Markdown.module.css";

interface OrPlainProps {
  text: string;
  children: ReactNode;
}

interface OrPlainState {
  /** The text that was last attempted. */
  text: string;
  isBroken: boolean;
}

export class PlainFallback extends Component<OrPlainProps, OrPlainState> {
  override state: OrPlainState = { text: this.props.text, isBroken: false };

  static getDerivedStateFromError(): Partial<OrPlainState> {
    return { isBroken: true };
  }

  /** Retry with another text. */
  static getDerivedStateFromProps({ text }: OrPlainProps, before: OrPlainState): OrPlainState | null {
    return text === before.text ? null : { text, isBroken: false };
  }

  override render(): ReactNode {
    return this.state.isBroken ? <Plain text={this.props.text} /> : this.props.children;
  }
}

export function Plain({ text }: { text: string }): JSX.Element {
  return <p className={styles.plain} dir="auto">{escapeDirectionOverrides(text)}</p>;
}
