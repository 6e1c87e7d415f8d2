/** Who is signed in, and through what the screens speak to the server. */
import { createContext, use } from "react";

import type { EverturnClient, Scope } from "../api";
import type { KeptFiles } from "../composer/keptFiles";

export interface Session {
  readonly backend: EverturnClient;
  readonly scope: Scope;
  /** Whether there is a credential to forget; in development there is none. */
  readonly isSignedIn: boolean;
  /** Files that are attached and not sent yet; signing out forgets them. */
  readonly keptFiles: KeptFiles;
  readonly signOut: () => void;
  /** The server takes the credential no more. */
  readonly expire: () => void;
}

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = use(SessionContext);
  if (session === null) throw new Error("There is no session around this component.");
  return session;
}

export function useBackend(): EverturnClient {
  return useSession().backend;
}
