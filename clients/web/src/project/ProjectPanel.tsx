/** The project of a conversation: what its turns changed in the workspace, the files after each of them, and how to clone it. */
import { Tab, TabList, TabPanel, TabProvider, useTabStore } from "@ariakit/react";
import { use, useCallback, useRef, useState } from "react";
import type { JSX, ReactNode } from "react";

import type { Commit, TurnView } from "../api";
import { Panel } from "../artifacts/Panel";
import { EmbeddedContext } from "../embed/embedding";
import { describeError, formatAge, formatCount } from "../ui/format";
import { useNow } from "../ui/useNow";
import { Changes } from "./Changes";
import { Clone } from "./Clone";
import { CommitList, countFiles } from "./CommitList";
import { Files } from "./Files";
import { openAround } from "./folders";
import type { OpenFolders } from "./folders";
import styles from "./project.module.css";
import { showPath } from "./text";
import { useCommits } from "./useCommits";

interface ProjectPanelProps {
  conversationId: string;
  turns: readonly TurnView[];
  onClose: () => void;
}

const TABS = { commits: "project-commits", changes: "project-changes", files: "project-files", clone: "project-clone" } as const;

export default function ProjectPanel({ conversationId, turns, onClose }: ProjectPanelProps): JSX.Element {
  const list = useCommits(conversationId, turns);
  const tabs = useTabStore({ defaultSelectedId: TABS.commits });
  const [wanted, setWanted] = useState("");
  const [folders, setFolders] = useState<OpenFolders>(new Set());
  const [file, setFile] = useState("");
  // A file that was chosen gets the focus, one that is still open when its tab is selected again does not.
  const wantsFocus = useRef(false);
  const takeFocus = useCallback(() => {
    const isWanted = wantsFocus.current;
    wantsFocus.current = false;
    return isWanted;
  }, []);
  const isEmbedded = use(EmbeddedContext);
  // A commit that is no longer there was replaced: a file in it was found to be harmful.
  const chosen = list.commits?.find(({ commit }) => commit === wanted) ?? list.commits?.[0];
  const openFile = (path: string): void => {
    wantsFocus.current = true;
    setFile(path);
  };
  const choose = (commit: string): void => {
    setWanted(commit);
    tabs.move(TABS.changes);
  };
  const openChanged = (path: string): void => {
    setFolders((open) => openAround(open, path));
    openFile(path);
    tabs.setSelectedId(TABS.files);
  };
  return (
    <Panel title="Project" details="" onClose={onClose}>
      {list.error !== null && <p className={styles.problem} role="alert">Couldn’t load the commits: {describeError(list.error)}</p>}
      {list.commits === undefined && list.error === null && <p className={styles.soft} aria-busy>Loading…</p>}
      {list.commits !== undefined && chosen === undefined && <p className={styles.soft}>The agent has not written any files yet.</p>}
      {chosen !== undefined && (
        <TabProvider store={tabs}>
          <TabList className={styles.tabs} aria-label="Project">
            <Tab id={TABS.commits}>Commits</Tab>
            <Tab id={TABS.changes}>Changes</Tab>
            <Tab id={TABS.files}>Files</Tab>
            {!isEmbedded && <Tab id={TABS.clone}>Clone</Tab>}
          </TabList>
          <Page tab={TABS.commits}><CommitList list={list} chosen={chosen.commit} onChoose={choose} /></Page>
          <Page tab={TABS.changes}>
            <ChosenCommit commit={chosen} />
            <Changes key={chosen.commit} conversationId={conversationId} commit={chosen} onFile={openChanged} />
          </Page>
          <Page tab={TABS.files}>
            <ChosenCommit commit={chosen} />
            <Files
              version={{ conversationId, commit: chosen.commit }}
              open={folders}
              onOpen={setFolders}
              file={file}
              onFile={openFile}
              takeFocus={takeFocus}
              onBack={() => { setFile(""); }}
            />
          </Page>
          {!isEmbedded && <Page tab={TABS.clone}><Clone conversationId={conversationId} /></Page>}
        </TabProvider>
      )}
    </Panel>
  );
}

/** What is not shown is not rendered, and so not loaded. */
function Page({ tab, children }: { tab: string; children: ReactNode }): JSX.Element {
  return <TabPanel tabId={tab} unmountOnHide className={styles.page}>{children}</TabPanel>;
}

function ChosenCommit({ commit }: { commit: Commit }): JSX.Element {
  const now = useNow();
  return (
    <p className={styles.chosen}>
      <bdi>{showPath(commit.subject)}</bdi>{" "}
      <span>{formatAge(Date.parse(commit.accepted_at), now)} · {formatCount(countFiles(commit), "changed file")}</span>
    </p>
  );
}
