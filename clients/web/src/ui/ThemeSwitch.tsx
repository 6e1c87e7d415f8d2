/** Switches between dark and light. */
import { Moon, Sun } from "lucide-react";
import { useEffect, useState, useSyncExternalStore } from "react";
import type { JSX } from "react";

import { IconButton } from "./Button";
import { chooseTheme, loadTheme, readTheme } from "./theme";

const system = window.matchMedia("(prefers-color-scheme: dark)");

export function ThemeSwitch(): JSX.Element {
  const systemIsDark = useSyncExternalStore(subscribe, () => system.matches);
  const [stored, setStored] = useState(() => loadTheme(localStorage));
  const theme = readTheme(stored, systemIsDark);
  const other = theme === "dark" ? "light" : "dark";
  useEffect(() => { document.documentElement.dataset.theme = theme; }, [theme]);
  const change = (): void => {
    chooseTheme(localStorage, other, systemIsDark);
    setStored(loadTheme(localStorage));
  };
  return <IconButton label={`Switch to ${other}`} icon={theme === "dark" ? <Sun aria-hidden /> : <Moon aria-hidden />} onClick={change} />;
}

function subscribe(listener: () => void): () => void {
  system.addEventListener("change", listener);
  return () => { system.removeEventListener("change", listener); };
}
