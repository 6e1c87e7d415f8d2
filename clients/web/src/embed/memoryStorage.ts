/**
 * A storage that lives as long as the page. Browsers that block the cookies of third parties refuse others to a frame of
 * another site; and nothing of an embedded chat has to stay on the device.
 */
export class MemoryStorage implements Storage {
  readonly [name: string]: unknown;
  private readonly items = new Map<string, string>();

  get length(): number {
    return this.items.size;
  }

  key(index: number): string | null {
    return [...this.items.keys()][index] ?? null;
  }

  getItem(key: string): string | null {
    return this.items.get(key) ?? null;
  }

  setItem(key: string, value: string): void {
    this.items.set(key, value);
  }

  removeItem(key: string): void {
    this.items.delete(key);
  }

  clear(): void {
    this.items.clear();
  }
}

/** From now on this page has no other storage. */
export function replaceStorage(page: Window): void {
  for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(page, name, { value: new MemoryStorage(), configurable: true });
}
