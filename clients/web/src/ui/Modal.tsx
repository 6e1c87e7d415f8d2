/** A modal dialog: the focus stays inside, Escape closes it, and the focus then moves to where the user continues. */
import { Dialog, DialogHeading } from "@ariakit/react";
import { useEffect } from "react";
import type { JSX, ReactNode } from "react";

import styles from "./Modal.module.css";

interface ModalProps {
  heading: string;
  onClose: () => void;
  children: ReactNode;
  /** Where the focus goes afterwards; the element that had it before may be gone. */
  returnTo: () => HTMLElement | null;
  /** An alert dialog asks for confirmation of an action that cannot be undone. */
  role?: "dialog" | "alertdialog";
}

export function Modal({ heading, onClose, children, returnTo, role = "dialog" }: ModalProps): JSX.Element {
  useEffect(
    () => () => {
      // The page behind becomes focusable only when the dialog is gone.
      requestAnimationFrame(() => { returnTo()?.focus(); });
    },
    [returnTo],
  );
  return (
    <Dialog open onClose={onClose} role={role} backdrop={<div className={styles.backdrop} />} className={styles.modal}>
      <DialogHeading className={styles.heading}>{heading}</DialogHeading>
      {children}
    </Dialog>
  );
}

export function ModalActions({ children }: { children: ReactNode }): JSX.Element {
  return <div className={styles.actions}>{children}</div>;
}
