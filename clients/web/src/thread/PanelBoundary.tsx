/** What fails beside the conversation takes down nothing but itself: a part of the page that could not be loaded, a fault. */
import { Component } from "react";
import type { ReactNode } from "react";

import { Panel } from "../artifacts/Panel";

interface PanelBoundaryProps {
  children: ReactNode;
  onClose: () => void;
}

export class PanelBoundary extends Component<PanelBoundaryProps, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <Panel title="This can’t be shown" details="" onClose={this.props.onClose}>
        <p role="alert">{error.message}. It may help to load the page again; nothing is lost.</p>
      </Panel>
    );
  }
}
