/** What is shown in place of a page that can't go on, with a way on. */
import type { JSX } from "react";

import { Button } from "../ui/Button";
import styles from "./shell.module.css";

export function BrokenPage({ error }: { error: Error }): JSX.Element {
  return (
    <main className={styles.broken} role="alert">
      <h1>The page can’t go on</h1>
      <p>An error of ours: {error.message}. Nothing that you have sent is lost.</p>
      <Button look="primary" onClick={() => { window.location.reload(); }}>Load the page again</Button>
    </main>
  );
}
