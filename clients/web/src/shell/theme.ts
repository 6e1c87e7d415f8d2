/** Dark or light: as the system says, or as the person chose. The choice is kept. */

export type Theme = "light" | "dark";

const KEY = "everturn.theme";

export function readTheme(stored: string | null, systemIsDark: boolean): Theme {
  if (stored === "light" || stored === "dark") return stored;
  return systemIsDark ? "dark" : "light";
}

/** What to store: nothing where the choice is what the system says, so that the page follows the system again. */
export function chooseTheme(storage: Storage, theme: Theme, systemIsDark: boolean): void {
  if (theme === readTheme(null, systemIsDark)) storage.removeItem(KEY);
  else storage.setItem(KEY, theme);
}

export function loadTheme(storage: Storage): string | null {
  return storage.getItem(KEY);
}
