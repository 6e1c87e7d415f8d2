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
  const [hasExpired, setExpired] = useState(false);
  const backend = useMemo(() => new EverturnClient({ ...scope, token: () => credential }), [scope, credential]);
  const signIn = useCallback(
    (given: string) => {
      saveCredential(sessionStorage, scope, given);
      setCredential(given);
      setExpired(false);
      setWanted(false);
    },
    [scope],
  );
  const leave = useCallback(() => {
    forgetCredential(sessionStorage, scope);
    setCredential(undefined);
    setWanted(true);
  }, [scope]);
  const expire = useCallback(() => {
    // Who comes without a credential is asked for one, and has lost none.
    const hadOne = loadCredential(sessionStorage, scope) !== undefined;
    // Several requests may be refused at once.
    setExpired((before) => before || hadOne);
    leave();
  }, [scope, leave]);
  const [keptFiles] = useState((): KeptFiles => new Map());
  const signOut = useCallback(() => {
    keptFiles.clear();
    setExpired(false);
    leave();
  }, [keptFiles, leave]);
  const session = useMemo(
    () => ({ backend, scope, isSignedIn: credential !== undefined, keptFiles, signOut, expire }),
    [backend, scope, credential, keptFiles, signOut, expire],
  );
  if (isWanted) return <SignIn backend={backend} scope={scope} hasExpired={hasExpired} onScope={onScope} onSignIn={signIn} />;
  return <SessionContext value={session}>{children}</SessionContext>;
}
