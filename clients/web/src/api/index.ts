// The public surface of the client library.
export * from "./types";
export { foldEvent, foldEvents } from "./fold/fold";
export { isOpen } from "./fold/turnFold";
export { type CompactionNotice, type ToolProgress, type Transient, foldTransient } from "./fold/transient";
