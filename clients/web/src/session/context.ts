/** The session of the signed-in user, and the API client for the screens. */
import { createContext, use } from "react";

import type { EverturnClient, Scope } from "../api";
import type { UnsentFiles } from "./unsentFiles";

export interface Session {
  readonly backend: EverturnClient;
  readonly scope: Scope;
  /** Whether there is a credential to remove; in development there is none. */
  readonly isSignedIn: boolean;
  /** Files that are attached but not sent; signing out drops them. */
  readonly unsentFiles: UnsentFiles;
  readonly signOut: () => void;
  /** Call this when the server no longer accepts the credential. */
  readonly expire: () => void;
}

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = use(SessionContext);
  if (session === null) throw new Error("SessionContext is missing around this component.");
  return session;
}

export function useBackend(): EverturnClient {
  return useSession().backend;
}
