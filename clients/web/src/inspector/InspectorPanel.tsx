/**
 * What the model saw in each round of a turn: the parts of the request, their tokens, and whether a cache could serve
 * them.
 */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { JSX } from "react";

import type { ContextSegment, RoundContext, TurnView } from "../api";
import { Panel } from "../artifacts/Panel";
import { useBackend } from "../session/context";
import { Button } from "../ui/Button";
import { formatCount, describeError } from "../ui/format";
import { CACHE_WORDS, findToolNames, sumByCache } from "./cache";
import type { ToolNames } from "./cache";
import styles from "./inspector.module.css";
import { Segment } from "./Segment";

interface InspectorPanelProps {
  conversationId: string;
  turnId: string;
  turns: readonly TurnView[];
  rounds: number;
  onClose: () => void;
}

export default function InspectorPanel({ conversationId, turnId, turns, rounds, onClose }: InspectorPanelProps): JSX.Element {
  const [round, setRound] = useState(rounds);
  const tools = useMemo(() => findToolNames(turns), [turns]);
  return (
    <Panel title="What the model saw" details={formatCount(rounds, "round")} onClose={onClose}>
      <label className={styles.round}>
        <span>Round</span>
        <select value={round} onChange={(event) => { setRound(Number(event.target.value)); }}>
          {Array.from({ length: rounds }, (_, at) => <option key={at + 1} value={at + 1}>{at + 1}</option>)}
        </select>
      </label>
      <Round key={round} conversationId={conversationId} turnId={turnId} round={round} tools={tools} />
    </Panel>
  );
}

function Round({ conversationId, turnId, round, tools }: { conversationId: string; turnId: string; round: number; tools: ToolNames }): JSX.Element {
  const backend = useBackend();
  const { data, error, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: ["round", conversationId, turnId, round],
    queryFn: ({ pageParam, signal }) => backend.loadRoundContext(conversationId, turnId, round, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page: RoundContext) => page.next_cursor,
    staleTime: Infinity,
  });
  const segments = useMemo(() => data?.pages.flatMap((page) => page.segments) ?? [], [data]);
  const first = data?.pages[0];
  if (error !== null) return <p className={styles.problem} role="alert">{describeError(error)}</p>;
  if (first === undefined) return <p className={styles.soft} aria-busy>Loading…</p>;
  return (
    <div className={styles.context}>
      <Facts page={first} />
      <CacheBar segments={segments} />
      <ol className={styles.segments} aria-label="Parts of the request">
        {segments.map((segment) => <li key={segment.index}><Segment segment={segment} turnId={turnId} tools={tools} /></li>)}
      </ol>
      {hasNextPage && (
        <Button disabled={isFetchingNextPage} onClick={() => fetchNextPage()}>Show more of {formatCount(first.segments_total, "part")}</Button>
      )}
    </div>
  );
}

function Facts({ page }: { page: RoundContext }): JSX.Element {
  return (
    <dl className={styles.facts}>
      <div><dt>Model</dt><dd>{page.model}</dd></div>
      <div><dt>Input</dt><dd>about {formatCount(page.tokens, "token")}</dd></div>
      <div><dt>Output limit</dt><dd>{formatCount(page.max_output_tokens, "token")}</dd></div>
      <div><dt>Sent</dt><dd><time dateTime={page.sent_at}>{new Date(page.sent_at).toLocaleString()}</time></dd></div>
    </dl>
  );
}

function CacheBar({ segments }: { segments: readonly ContextSegment[] }): JSX.Element {
  const sums = sumByCache(segments);
  return (
    <section aria-label="Cache">
      <div className={styles.bar} aria-hidden>
        {sums.map(({ cache, tokens }) => <span key={cache} className={styles[cache]} style={{ flexGrow: tokens }} />)}
      </div>
      <dl className={styles.legend}>
        {sums.map(({ cache, tokens }) => (
          <div key={cache}>
            <dt><span className={styles[cache]} aria-hidden /> {CACHE_WORDS[cache].name}</dt>
            <dd>{formatCount(tokens, "token")}. {CACHE_WORDS[cache].why}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
