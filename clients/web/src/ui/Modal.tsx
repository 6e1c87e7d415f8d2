/** A dialog over the page: focus stays inside, Escape closes it and focus goes back to where it was. */
import { Dialog, DialogHeading } from "@ariakit/react";
import type { JSX, ReactNode } from "react";

import styles from "./Modal.module.css";

interface ModalProps {
  heading: string;
  onClose: () => void;
  children: ReactNode;
  /** An alert dialog asks before something that can't be undone. */
  role?: "dialog" | "alertdialog";
}

export function Modal({ heading, onClose, children, role = "dialog" }: ModalProps): JSX.Element {
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
