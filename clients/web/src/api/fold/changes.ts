// Updates of frozen values. Whatever did not change stays the same object.

export type Changes<Value> = { readonly [Key in keyof Value]?: Value[Key] | undefined };

/** `value` with other fields. A field set to undefined is removed, as on the wire. */
export function change<Value extends object>(value: Value, changes: Changes<Value>): Value {
  const kept = Object.entries({ ...value, ...changes }).filter(([, field]) => field !== undefined);
  return Object.fromEntries(kept) as Value;
}

/** Replaces the last item for which `isSame` is true, or appends `item`. */
export function put<Item>(items: readonly Item[], item: Item, isSame: (present: Item) => boolean): readonly Item[] {
  const place = items.findLastIndex(isSame);
  return place < 0 ? [...items, item] : items.with(place, item);
}

/** Compares keys part by part. */
export function compareKeys(one: readonly (number | string)[], other: readonly (number | string)[]): number {
  for (const [place, part] of one.entries()) {
    const against = other[place];
    if (against === undefined || part === against) continue;
    return part < against ? -1 : 1;
  }
  return 0;
}
