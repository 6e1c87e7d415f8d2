/** Shown instead of the page after an unexpected error, with a way to reload. */
import type { JSX } from "react";

import { Button } from "../ui/Button";
import styles from "./shell.module.css";

export function BrokenPage({ error }: { error: Error }): JSX.Element {
  return (
    <main className={styles.broken} role="alert">
      <h1>Something went wrong</h1>
      <p>This page ran into an error: {error.message}. Everything you sent has been saved.</p>
      <Button variant="primary" onClick={() => { window.location.reload(); }}>Reload</Button>
    </main>
  );
}
