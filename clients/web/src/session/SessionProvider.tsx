/** Knows the credential of this tab, and asks for one when the server wants it. */
import { useCallback, useMemo, useState } from "react";
import type { JSX, ReactNode } from "react";

import { EverturnClient } from "../api";
import type { Scope } from "../api";
import type { KeptFiles } from "../composer/keptFiles";
import { SessionContext } from "./context";
import { forgetCredential, loadCredential, saveCredential } from "./credentials";
import { SignIn } from "./SignIn";

interface SessionProviderProps {
  scope: Scope;
  onScope: (scope: Scope) => void;
  children: ReactNode;
}

export function SessionProvider({ scope, onScope, children }: SessionProviderProps): JSX.Element {
  const [credential, setCredential] = useState(() => loadCredential(sessionStorage, scope));
  const [isWanted, setWanted] = useState(false);
  const backend = useMemo(() => new EverturnClient({ ...scope, token: () => credential }), [scope, credential]);
  const signIn = useCallback(
    (given: string) => {
      saveCredential(sessionStorage, scope, given);
      setCredential(given);
      setWanted(false);
    },
    [scope],
  );
  const leave = useCallback(() => {
    forgetCredential(sessionStorage, scope);
    setCredential(undefined);
    setWanted(true);
  }, [scope]);
  const [keptFiles] = useState((): KeptFiles => new Map());
  const signOut = useCallback(() => {
    keptFiles.clear();
    leave();
  }, [keptFiles, leave]);
  const session = useMemo(
    () => ({ backend, scope, isSignedIn: credential !== undefined, keptFiles, signOut, expire: leave }),
    [backend, scope, credential, keptFiles, signOut, leave],
  );
  if (isWanted) return <SignIn backend={backend} scope={scope} onScope={onScope} onSignIn={signIn} />;
  return <SessionContext value={session}>{children}</SessionContext>;
}
