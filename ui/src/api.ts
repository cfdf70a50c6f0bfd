// Requests to the server. The session is in a cookie that this page cannot read.
// Requests that change something also carry the session's token, which the server
// returns once, when the session begins.
import type * as wire from "./wire";

/** ApiError is an error response of the server. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = "",
    readonly field = "",
    readonly fields: wire.FieldError[] = [],
  ) {
    super(message);
  }
}

// The session's token is in localStorage, which belongs to this port. Cookies do not:
// a browser sends them to every port of a host. The landing page of a login writes
// the same item.
const item = "brig_csrf";

/** hasToken reports whether this browser has a session's token. */
export const hasToken = () => !!localStorage.getItem(item);

/** forget removes the session's token. */
export const forget = () => localStorage.removeItem(item);

async function problem(r: Response): Promise<ApiError> {
  try {
    const { error: e }: wire.ErrorAnswer = await r.json();
    return new ApiError(r.status, e.code, e.message, e.hint, e.field, e.fields);
  } catch {
    return new ApiError(r.status, "", `the server answered ${r.status}`);
  }
}

function headers(body: unknown): HeadersInit {
  const h: Record<string, string> = {};
  if (body !== undefined && !(body instanceof Blob)) h["Content-Type"] = "application/json";
  if (body instanceof Blob) h["Content-Type"] = "application/octet-stream";
  const token = localStorage.getItem(item);
  if (token) h["X-Brig-CSRF"] = token;
  return h;
}

// reach is fetch with an error message for a server that does not respond.
async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, { ...init, credentials: "same-origin" });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new ApiError(0, "", "The server cannot be reached", "It may be restarting, or the connection to it is lost. This page goes on when it answers.");
  }
}

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const r = await reach(path, {
    method,
    headers: headers(body),
    body: body === undefined ? undefined : body instanceof Blob ? body : JSON.stringify(body),
    signal,
  });
  if (!r.ok) throw await problem(r);
  return r;
}

/** call requests JSON; an empty response is undefined. */
export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const r = await send(method, path, body, signal);
  const text = await r.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** text requests text. */
export async function text(path: string, signal?: AbortSignal): Promise<string> {
  return (await send("GET", path, undefined, signal)).text();
}

export const get = <T>(path: string, signal?: AbortSignal) => call<T>("GET", path, undefined, signal);

/** pages requests pages of a list until it has at least `most` items. It returns them under `name`, the name of the list in
 * the response. `more` is true if the server has further items. */
export async function pages<Name extends string, T>(path: string, name: Name, most: number, signal?: AbortSignal): Promise<Record<Name, T[]> & { more: boolean }> {
  const items: T[] = [];
  for (let cursor = ""; ; ) {
    const p = await get<Record<Name, T[]> & { next_cursor?: string }>(`${path}?limit=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`, signal);
    items.push(...p[name]);
    if (!p.next_cursor || items.length >= most) return { [name]: items, more: !!p.next_cursor } as Record<Name, T[]> & { more: boolean };
    cursor = p.next_cursor;
  }
}

/** login begins a session with a key, and does not store the key. */
export async function login(key: string): Promise<void> {
  const r = await reach("/v1/auth/session", { method: "POST", headers: { Authorization: `Bearer ${key}` } });
  if (!r.ok) throw await problem(r);
  localStorage.setItem(item, (await r.json()).csrf);
}

/** events reads a stream of JSON lines as they arrive. It throws an error in the
 * stream, like that of a response. */
export async function* events<T extends { event: string }>(method: string, path: string, body?: unknown, signal?: AbortSignal): AsyncGenerator<T> {
  const r = await reach(path, {
    method,
    headers: { ...headers(body), Accept: "application/x-ndjson" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
  });
  if (!r.ok) throw await problem(r);
  const reader = r.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    for (const l of lines) {
      if (!l.trim()) continue;
      const e = JSON.parse(l) as T & Partial<wire.ErrorAnswer>;
      if (e.event === "error" && e.error) throw new ApiError(r.status, e.error.code ?? "", e.error.message, e.error.hint, e.error.field);
      yield e;
    }
  }
}

/** bytesOf returns the bytes of a chunk of output. */
export function bytesOf(c: wire.Chunk): Uint8Array {
  if (c.data_b64) return Uint8Array.from(atob(c.data_b64), (x) => x.charCodeAt(0));
  return new TextEncoder().encode(c.data ?? "");
}

export const path = encodeURIComponent;
