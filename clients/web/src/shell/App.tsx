/** The whole page: the route, the session and the shell. */
import { useCallback, useMemo } from "react";
import type { JSX } from "react";

import type { Scope } from "../api";
import { SessionProvider } from "../session/SessionProvider";
import { AnnouncerProvider } from "../ui/announcer";
import { ErrorBoundary } from "../ui/ErrorBoundary";
import { BrokenPage } from "./BrokenPage";
import { Queries } from "./Queries";
import { Shell } from "./Shell";
import type { Select } from "./Shell";
import { useRoute } from "../routing/useRoute";

export function App(): JSX.Element {
  const [route, go] = useRoute();
  const { conversationId, turnId } = route;
  const { tenant, project } = route.scope;
  // Keep the same object while the names are the same: a new scope would be a new session and render everything again.
  const scope = useMemo(() => ({ tenant, project }), [tenant, project]);
  const onScope = useCallback((wanted: Scope) => { go({ scope: wanted, conversationId: null, turnId: null }); }, [go]);
  const onSelect = useCallback<Select>((id, turn) => { go({ scope, conversationId: id, turnId: turn ?? null }); }, [go, scope]);
  return (
    <ErrorBoundary fallback={(error) => <BrokenPage error={error} />}>
      <AnnouncerProvider>
        <SessionProvider key={JSON.stringify([tenant, project])} scope={scope} onScope={onScope}>
          <Queries>
            <Shell conversationId={conversationId} turnId={turnId} onSelect={onSelect} />
          </Queries>
        </SessionProvider>
      </AnnouncerProvider>
    </ErrorBoundary>
  );
}
