// Changing frozen values so that whatever did not change stays the same object.

export type Changes<Value> = { readonly [Key in keyof Value]?: Value[Key] | undefined };

/** `value` with other fields. A field that becomes undefined is not there any more, as on the wire. */
export function change<Value extends object>(value: Value, changes: Changes<Value>): Value {
  const kept = Object.entries({ ...value, ...changes }).filter(([, field]) => field !== undefined);
  return Object.fromEntries(kept) as Value;
}

/** `item` in the place of the last one that `isSame`, or at the end. */
export function put<Item>(items: readonly Item[], item: Item, isSame: (present: Item) => boolean): readonly Item[] {
  const place = items.findLastIndex(isSame);
  return place < 0 ? [...items, item] : items.with(place, item);
}

/** Orders by the parts of a key, one after the other. */
export function compareKeys(one: readonly (number | string)[], other: readonly (number | string)[]): number {
  for (const [place, part] of one.entries()) {
    const against = other[place];
    if (against === undefined || part === against) continue;
    return part < against ? -1 : 1;
  }
  return 0;
}
