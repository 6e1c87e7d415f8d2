/** Buttons: with words, or with an icon and an accessible name. */
import { clsx } from "clsx";
import type { ButtonHTMLAttributes, JSX, ReactNode, Ref } from "react";

import styles from "./Button.module.css";

type Look = "plain" | "primary" | "quiet" | "danger";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: Look;
  ref?: Ref<HTMLButtonElement>;
}

export function Button({ look = "plain", className, ...rest }: ButtonProps): JSX.Element {
  return <button type="button" className={clsx(styles.button, styles[look], className)} {...rest} />;
}

interface IconButtonProps extends Omit<ButtonProps, "aria-label" | "title" | "children"> {
  /** What it does; also its tooltip. */
  label: string;
  icon: ReactNode;
}

export function IconButton({ label, icon, look = "quiet", className, ...rest }: IconButtonProps): JSX.Element {
  return (
    <button type="button" aria-label={label} title={label} className={clsx(styles.icon, styles[look], className)} {...rest}>
      {icon}
    </button>
  );
}
