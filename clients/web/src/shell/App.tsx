/** The whole page: where it is, who is signed in, and what is shown. */
import { useCallback } from "react";
import type { JSX } from "react";

import type { Scope } from "../api";
import { SessionProvider } from "../session/SessionProvider";
import { AnnouncerProvider } from "../ui/announcer";
import { ErrorBoundary } from "./ErrorBoundary";
import { Queries } from "./Queries";
import { Shell } from "./Shell";
import { useRoute } from "./useRoute";

export function App(): JSX.Element {
  const [route, go] = useRoute();
  const { scope, conversationId } = route;
  const onScope = useCallback((wanted: Scope) => { go({ scope: wanted, conversationId: null }); }, [go]);
  const onSelect = useCallback((id: string | null) => { go({ scope, conversationId: id }); }, [go, scope]);
  return (
    <ErrorBoundary>
      <AnnouncerProvider>
        <SessionProvider key={`${scope.tenant}/${scope.project}`} scope={scope} onScope={onScope}>
          <Queries>
            <Shell conversationId={conversationId} onSelect={onSelect} />
          </Queries>
        </SessionProvider>
      </AnnouncerProvider>
    </ErrorBoundary>
  );
}
