/** The sign-in page: accepts a credential, or a guest if the operator allows guests. */
import { useEffect, useState } from "react";
import type { JSX } from "react";

import { EverturnClient, ProblemError } from "../api";
import type { Scope } from "../api";
import { ThemeSwitch } from "../ui/ThemeSwitch";
import { Button } from "../ui/Button";
import { describeError } from "../ui/format";
import { readCredential } from "./credentials";
import styles from "./SignIn.module.css";

const EXPIRED = "Your token is no longer accepted: it has expired or was revoked. Sign in again.";
const REFUSED = "This token or key was not accepted. It may be mistyped, expired or revoked.";
const IMPOSSIBLE = "This doesn’t look like a token or key. Tokens and keys contain only letters, digits and punctuation, without spaces.";

interface SignInProps {
  backend: EverturnClient;
  scope: Scope;
  /** Whether the server no longer accepts the credential that this tab had. */
  hasExpired: boolean;
  onScope: (scope: Scope) => void;
  onSignIn: (credential: string) => void;
}

export function SignIn({ backend, scope, hasExpired, onScope, onSignIn }: SignInProps): JSX.Element {
  const [pasted, setPasted] = useState("");
  const [problem, setProblem] = useState(hasExpired ? EXPIRED : "");
  const [isBusy, setBusy] = useState(false);
  const allowsGuests = useGuests(backend);
  const submit = async (): Promise<void> => {
    const credential = readCredential(pasted);
    if (credential === null) {
      setProblem(IMPOSSIBLE);
      return;
    }
    setBusy(true);
    setProblem("");
    try {
      // Verify the credential here, where the user can correct it.
      await new EverturnClient({ ...scope, token: () => credential }).listConversations({ limit: 1 });
      onSignIn(credential);
    } catch (error) {
      setProblem(error instanceof ProblemError && error.status === 401 ? REFUSED : describeError(error));
      setBusy(false);
    }
  };
  const enterAsGuest = (): void => {
    setProblem("");
    backend.createGuest().then(
      (guest) => { onSignIn(guest.token); },
      (error: unknown) => { setProblem(describeError(error)); },
    );
  };
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <h1>Sign in to Everturn</h1>
        <p>Paste an access token or API key. It is stored only in this tab and deleted when you close the tab.</p>
        <form className={styles.form} aria-label="Sign in" onSubmit={(event) => { event.preventDefault(); void submit(); }}>
          <label>
            <span>Token or API key</span>
            <input type="password" autoComplete="off" spellCheck={false} value={pasted} onChange={(event) => { setPasted(event.target.value); }} />
          </label>
          {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
          <Button variant="primary" type="submit" disabled={isBusy || pasted.trim() === ""}>Sign in</Button>
        </form>
        {allowsGuests && <Button onClick={enterAsGuest}>Continue as guest</Button>}
        <ScopeForm scope={scope} onScope={onScope} />
        <ThemeSwitch />
      </div>
    </main>
  );
}

/** Offered only if the server confirms that guests are allowed; not if the request fails. */
function useGuests(backend: EverturnClient): boolean {
  const [answer, setAnswer] = useState<{ of: EverturnClient; allowsGuests: boolean } | null>(null);
  useEffect(() => {
    const leave = new AbortController();
    backend.allowsGuests(leave.signal).then(
      (allowsGuests) => { setAnswer({ of: backend, allowsGuests }); },
      () => { setAnswer(null); },
    );
    return () => { leave.abort(); };
  }, [backend]);
  return answer?.of === backend && answer.allowsGuests;
}

function ScopeForm({ scope, onScope }: Pick<SignInProps, "scope" | "onScope">): JSX.Element {
  const [tenant, setTenant] = useState(scope.tenant);
  const [project, setProject] = useState(scope.project);
  return (
    <details>
      <summary>Tenant {scope.tenant}, project {scope.project}</summary>
      <form className={styles.form} aria-label="Tenant and project" onSubmit={(event) => { event.preventDefault(); onScope({ tenant, project }); }}>
        <label><span>Tenant</span><input value={tenant} onChange={(event) => { setTenant(event.target.value.trim()); }} /></label>
        <label><span>Project</span><input value={project} onChange={(event) => { setProject(event.target.value.trim()); }} /></label>
        <Button type="submit" disabled={tenant === "" || project === ""}>Switch</Button>
      </form>
    </details>
  );
}
