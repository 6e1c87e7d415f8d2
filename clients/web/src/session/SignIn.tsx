/** Asks for a credential, or lets a guest in where the operator does. */
import { useEffect, useState } from "react";
import type { JSX } from "react";

import type { EverturnClient, Scope } from "../api";
import { ThemeSwitch } from "../shell/ThemeSwitch";
import { Button } from "../ui/Button";
import { sayError } from "../ui/wording";
import { readCredential } from "./credentials";
import styles from "./SignIn.module.css";

interface SignInProps {
  backend: EverturnClient;
  scope: Scope;
  onScope: (scope: Scope) => void;
  onSignIn: (credential: string) => void;
}

export function SignIn({ backend, scope, onScope, onSignIn }: SignInProps): JSX.Element {
  const [pasted, setPasted] = useState("");
  const [problem, setProblem] = useState("");
  const takesGuests = useGuests(backend);
  const submit = (): void => {
    const credential = readCredential(pasted);
    if (credential === null) setProblem("This can’t be a token or a key: those have no blanks and only plain characters.");
    else onSignIn(credential);
  };
  const enterAsGuest = (): void => {
    setProblem("");
    backend.createGuest().then(
      (guest) => { onSignIn(guest.token); },
      (error: unknown) => { setProblem(sayError(error)); },
    );
  };
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <h1>Sign in to Everturn</h1>
        <p>Paste a token of your login or an API key. It is kept in this tab only, and forgotten when you close it.</p>
        <form className={styles.form} aria-label="Sign in" onSubmit={(event) => { event.preventDefault(); submit(); }}>
          <label>
            <span>Token or API key</span>
            <input type="password" autoComplete="off" spellCheck={false} value={pasted} onChange={(event) => { setPasted(event.target.value); }} />
          </label>
          {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
          <Button look="primary" type="submit" disabled={pasted.trim() === ""}>Sign in</Button>
        </form>
        {takesGuests && <Button onClick={enterAsGuest}>Go on as a guest</Button>}
        <ScopeForm scope={scope} onScope={onScope} />
        <ThemeSwitch />
      </div>
    </main>
  );
}

/** Offered only where the server has said so; who can't be asked is not known to let anybody in. */
function useGuests(backend: EverturnClient): boolean {
  const [answer, setAnswer] = useState<{ of: EverturnClient; takesGuests: boolean } | null>(null);
  useEffect(() => {
    const leave = new AbortController();
    backend.takesGuests(leave.signal).then(
      (takesGuests) => { setAnswer({ of: backend, takesGuests }); },
      () => { setAnswer(null); },
    );
    return () => { leave.abort(); };
  }, [backend]);
  return answer?.of === backend && answer.takesGuests;
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
        <Button type="submit" disabled={tenant === "" || project === ""}>Go there</Button>
      </form>
    </details>
  );
}
