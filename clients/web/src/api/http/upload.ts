// Uploads a form with files. Only XMLHttpRequest reports the progress of a request body.
import type { Answer } from "./responses";
import { Unreachable } from "./errors";

export interface UploadRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly form: FormData;
  /** How long no byte may move in either direction. */
  readonly silenceMs: number;
  readonly onProgress?: ((share: number) => void) | undefined;
  readonly abort?: AbortSignal | undefined;
}

/** The response, whatever its status. Rejects with Unreachable, or with the reason of the abort. */
export function sendUpload(request: UploadRequest): Promise<Answer> {
  const { abort } = request;
  return new Promise((resolve, reject) => {
    if (abort?.aborted === true) {
      reject(abort.reason as Error);
      return;
    }
    const xhr = new XMLHttpRequest();
    let silence: ReturnType<typeof setTimeout> | undefined;
    const giveUp = () => {
      xhr.abort();
    };
    const settle = (end: () => void) => () => {
      clearTimeout(silence);
      abort?.removeEventListener("abort", giveUp);
      end();
    };
    const fail = settle(() => {
      reject(abort?.aborted === true ? (abort.reason as Error) : new Unreachable());
    });
    const hear = () => {
      clearTimeout(silence);
      silence = setTimeout(giveUp, request.silenceMs);
    };
    xhr.upload.onprogress = ({ loaded, total }) => {
      hear();
      if (total > 0) request.onProgress?.(loaded / total);
    };
    xhr.onprogress = hear;
    xhr.onerror = fail;
    xhr.onabort = fail;
    xhr.onload = settle(() => {
      resolve({ status: xhr.status, text: xhr.responseText, retryAfter: xhr.getResponseHeader("retry-after") });
    });
    abort?.addEventListener("abort", giveUp);
    xhr.open("POST", request.url);
    for (const [name, value] of Object.entries(request.headers)) xhr.setRequestHeader(name, value);
    hear();
    xhr.send(request.form);
  });
}
