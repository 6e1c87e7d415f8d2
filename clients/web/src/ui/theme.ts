/** Dark or light: the system's setting, or the user's stored choice. */

export type Theme = "light" | "dark";

const KEY = "everturn.theme";

export function readTheme(stored: string | null, systemIsDark: boolean): Theme {
  if (stored === "light" || stored === "dark") return stored;
  return systemIsDark ? "dark" : "light";
}

/** Stores nothing if the choice equals the system's setting, so that the page follows the system again. */
export function chooseTheme(storage: Storage, theme: Theme, systemIsDark: boolean): void {
  if (theme === readTheme(null, systemIsDark)) storage.removeItem(KEY);
  else storage.setItem(KEY, theme);
}

export function loadTheme(storage: Storage): string | null {
  return storage.getItem(KEY);
}
