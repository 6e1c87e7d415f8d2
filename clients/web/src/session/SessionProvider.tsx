/** Holds the credential of this tab, and shows the sign-in page when the server requires one. */
import { useCallback, useMemo, useState } from "react";
import type { JSX, ReactNode } from "react";

import { EverturnClient } from "../api";
import type { Scope } from "../api";
import type { UnsentFiles } from "./unsentFiles";
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
    // A request without a credential is rejected too, but then none has expired.
    const hadOne = loadCredential(sessionStorage, scope) !== undefined;
    // Several requests may be rejected at the same time.
    setExpired((before) => before || hadOne);
    leave();
  }, [scope, leave]);
  const [unsentFiles] = useState((): UnsentFiles => new Map());
  const signOut = useCallback(() => {
    unsentFiles.clear();
    setExpired(false);
    leave();
  }, [unsentFiles, leave]);
  const session = useMemo(
    () => ({ backend, scope, isSignedIn: credential !== undefined, unsentFiles, signOut, expire }),
    [backend, scope, credential, unsentFiles, signOut, expire],
  );
  if (isWanted) return <SignIn backend={backend} scope={scope} hasExpired={hasExpired} onScope={onScope} onSignIn={signIn} />;
  return <SessionContext value={session}>{children}</SessionContext>;
}
