/** File downloads. */

const RELEASE_MS = 60_000;

/** Start a download of data that is already in memory. The browser makes a safe file name of the text. */
export function downloadBlob(blob: Blob, filename: string): void {
  const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = filename;
  link.click();
  // The browser may still be reading it.
  setTimeout(() => { URL.revokeObjectURL(url); }, RELEASE_MS);
}
