/** Giving the person a file to keep. */

const RELEASE_MS = 60_000;

/** Start a download of what is already here. The name is text: the browser makes a file name of it. */
export function saveBlob(blob: Blob, filename: string): void {
  const url = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = filename;
  link.click();
  // The browser may still be reading it.
  setTimeout(() => { URL.revokeObjectURL(url); }, RELEASE_MS);
}
