/** Buttons with text, or with an icon and an accessible name. */
import { clsx } from "clsx";
import type { ButtonHTMLAttributes, JSX, ReactNode, Ref } from "react";

import styles from "./Button.module.css";

type Variant = "plain" | "primary" | "quiet" | "danger";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  variant?: Variant;
  ref?: Ref<HTMLButtonElement>;
}

export function Button({ variant = "plain", className, ...rest }: ButtonProps): JSX.Element {
  return <button type="button" className={clsx(styles.button, styles[variant], className)} {...rest} />;
}

interface IconButtonProps extends Omit<ButtonProps, "aria-label" | "title" | "children"> {
  /** The action; also its tooltip. */
  label: string;
  icon: ReactNode;
}

export function IconButton({ label, icon, variant = "quiet", className, ...rest }: IconButtonProps): JSX.Element {
  return (
    <button type="button" aria-label={label} title={label} className={clsx(styles.icon, styles[variant], className)} {...rest}>
      {icon}
    </button>
  );
}
