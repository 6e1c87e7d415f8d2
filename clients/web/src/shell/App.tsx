/** The whole page. */
export function App(): React.JSX.Element {
  return <h1>Everturn</h1>;
}
