/** An error of ours takes down what it is in, says so, and offers a way on; nothing that was sent is lost. */
import { Component } from "react";
import type { ReactNode } from "react";

import { Button } from "../ui/Button";
import styles from "./shell.module.css";

interface ErrorBoundaryProps {
  children: ReactNode;
}

export class ErrorBoundary extends Component<ErrorBoundaryProps, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <main className={styles.broken} role="alert">
        <h1>The page can’t go on</h1>
        <p>An error of ours: {error.message}. Nothing that you have sent is lost.</p>
        <Button look="primary" onClick={() => { window.location.reload(); }}>Load the page again</Button>
      </main>
    );
  }
}
