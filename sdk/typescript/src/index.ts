/**
 * A client for the features of a Brig server that E2B's SDK lacks: limits, secrets,
 * workspaces, egress rules with ports and methods, and programs with arguments in
 * their own sandboxes. For terminals, files and notebooks, use E2B's SDK with
 * sandboxes that it creates.
 *
 * The client needs only `fetch`.
 */

import type * as wire from './wire.js'

/** An egress rule. The first matching rule decides. Connections that no rule matches are denied. */
export type EgressRule = wire.EgressRule

/** A secret and its environment variable; by default the name in upper case. */
export type SecretUse = wire.SecretUse

/** A workspace of a sandbox, at `/workspace`. */
export type WorkspaceUse = Omit<wire.WorkspaceUse, 'id'>

/** The limits of a sandbox or program. Sizes are bytes, or for example `512MiB`. */
export type Limits = wire.LimitsRequest

/** The options that sandboxes and programs share. */
export interface Options extends Pick<wire.Spec & wire.RunRequest, 'name' | 'image' | 'limits' | 'labels' | 'env' | 'require'> {
  secrets?: (string | SecretUse)[]
  egress?: (string | EgressRule)[]
  workspace?: string | WorkspaceUse
}

/** The specification of a sandbox. */
export interface Spec extends Options, Pick<wire.Spec, 'template'> {
  /** Milliseconds without use after which the sandbox ends. */
  ttlMs?: number
  /** Milliseconds without use after which the sandbox is paused until its next use; less than `ttlMs`. */
  pauseAfterMs?: number
  /** Those pauses keep only the files: its next use boots it again. */
  pauseFilesOnly?: boolean
}

/** The options of a program. */
export interface Program extends Options, Pick<wire.RunRequest, 'arguments' | 'stdin'> {
  language?: 'python' | 'javascript' | 'typescript' | 'bash'
  /** Text files to write below `/workspace` before the program starts. */
  files?: Record<string, string>
  timeoutMs?: number
}

/** The options of a command. */
export interface ExecOptions extends Pick<wire.ExecRequest, 'cwd' | 'env' | 'stdin' | 'user'> {
  timeoutMs?: number
}

/** The state of a sandbox. */
export type SandboxInfo = wire.Sandbox

/** The result of a command, even of one that fails. */
export type ExecResult = wire.Result

/** The result of a program. `has_result` is false if `main` was not called. */
export interface RunResult<T = unknown> extends Omit<wire.RunAnswer, 'result'> {
  /** The return value of `main`. */
  result: T
}

/** The body of a request. A field without a value is not sent. */
type Body<T> = { [K in keyof T]: T[K] | undefined }

/** An error of the server: a message, a stable code, the invalid option, and a hint with the fix. */
export class BrigError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly kind: string,
    readonly field = '',
    readonly hint = '',
    readonly status = 0,
    options?: ErrorOptions,
    /** Milliseconds after which to retry, or 0. */
    readonly retryAfterMs = 0,
  ) {
    super(message, options)
    this.name = 'BrigError'
  }
}

/** A client of a Brig server. */
export class Brig {
  readonly #url: string
  readonly #key: string
  readonly #patienceMs: number

  /**
   * `url` and `key` default to the environment variables `BRIG_URL` and `BRIG_API_KEY`.
   * The client rejects an `http://` URL of another machine, because others on the
   * network could read the key; `insecureHttp` or `BRIG_INSECURE_HTTP` permits it.
   *
   * A server at its capacity rejects a call before it starts. The client retries after
   * the time that the server returns, for up to `patienceMs` (30 s); 0 disables retries.
   */
  constructor(options: { url?: string; key?: string; insecureHttp?: boolean; patienceMs?: number } = {}) {
    const env = (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {}
    this.#url = (options.url ?? env['BRIG_URL'] ?? 'http://127.0.0.1:2744').replace(/\/+$/, '')
    this.#key = options.key ?? env['BRIG_API_KEY'] ?? ''
    this.#patienceMs = options.patienceMs ?? 30_000
    const insecure = options.insecureHttp ?? /^(1|t|true)$/i.test(env['BRIG_INSECURE_HTTP'] ?? '')
    if (!insecure) rejectPlain(this.#url)
  }

  /** Runs a program in a new sandbox, which is removed afterwards in any case. */
  run<T = unknown>(code: string, program: Program = {}, signal?: AbortSignal): Promise<RunResult<T>> {
    const { timeoutMs, language = 'python', ...rest } = program
    const content: Body<wire.RunRequest> = { code, language, ...body(rest), timeout_ms: timeoutMs }
    return this.#lasting(['run'], content, signal)
  }

  /** Creates a sandbox, and returns when it is running. */
  create(spec: Spec = {}): Promise<SandboxInfo> {
    const { ttlMs, pauseAfterMs, pauseFilesOnly, ...rest } = spec
    const content: Body<wire.Spec> = { ...body(rest), ttl_ms: ttlMs, pause_after_ms: pauseAfterMs, pause_files_only: pauseFilesOnly }
    return this.#call('POST', ['sandboxes'], content)
  }

  /** Runs a command, or a script in the sandbox's shell, and waits until it ends. */
  exec(name: string, command: string | string[], options: ExecOptions = {}, signal?: AbortSignal): Promise<ExecResult> {
    const { timeoutMs, ...rest } = options
    const what = typeof command === 'string' ? { shell: command } : { command }
    const content: Body<wire.ExecRequest> = { ...what, ...rest, timeout_ms: timeoutMs }
    return this.#lasting(['sandboxes', name, 'exec'], content, signal)
  }

  /**
   * Creates copies of a sandbox, with its memory, programs and files. If one fails, none is created.
   * A single copy can have a name and be paused: it then uses only disk space.
   */
  async fork(name: string, options: Omit<wire.ForkRequest, 'ttl_ms'> & { ttlMs?: number } = {}): Promise<SandboxInfo[]> {
    const { ttlMs, ...rest } = options
    const content: Body<wire.ForkRequest> = { ...rest, ttl_ms: ttlMs }
    return (await this.#call<wire.Copies>('POST', ['sandboxes', name, 'fork'], content)).sandboxes
  }

  /**
   * Saves a sandbox's memory and files on disk until its next use, which resumes it. With
   * `filesOnly` no program prevents that: contexts and processes end, and the resume boots it
   * again with its files, without those in `/tmp` and `/dev/shm`.
   */
  pause(name: string, options: { filesOnly?: boolean } = {}): Promise<SandboxInfo> {
    const content: Body<wire.PauseRequest> = { files_only: options.filesOnly }
    return this.#call('POST', ['sandboxes', name, 'pause'], content)
  }

  /** Continues a paused sandbox ahead of its next use. */
  resume(name: string): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes', name, 'resume'], {})
  }

  /** Replaces the egress rules of a sandbox. */
  setEgress(name: string, rules: (string | EgressRule)[]): Promise<SandboxInfo> {
    return this.#call('PUT', ['sandboxes', name, 'egress'], egress(rules))
  }

  /** Saves the current files of a sandbox as a new version of its workspace. */
  commit(name: string): Promise<wire.WorkspaceCommit> {
    return this.#call('POST', ['sandboxes', name, 'commit'])
  }

  /**
   * Yields the output of a sandbox's programs, or its last lines, and then what they
   * write until the sandbox ends. Reading it is a use of the sandbox.
   */
  async *followLogs(name: string, options: { tail?: number; signal?: AbortSignal } = {}): AsyncGenerator<string> {
    const { tail, signal } = options
    const own = new AbortController()
    const leave = () => own.abort(signal?.reason)
    signal?.throwIfAborted()
    signal?.addEventListener('abort', leave, { once: true })
    try {
      const query = `?follow=true${tail === undefined ? '' : `&tail=${tail}`}`
      const init: RequestInit = { headers: { Accept: 'application/x-ndjson', ...(this.#key && { Authorization: `Bearer ${this.#key}` }) }, redirect: 'manual', signal: own.signal }
      const answer = await fetch(`${this.#url}/v1/sandboxes/${encodeURIComponent(name)}/logs${query}`, init)
      if (!answer.ok || !answer.body) throw refusal(answer.status, await answer.text(), this.#url, answer.headers.get('Retry-After'))
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
      for (let rest = ''; ; ) {
        const { done, value } = await reader.read()
        if (done) throw new BrigError('the connection ended before the result', 'SB003', 'connection_failed', '', `check that brig serve runs at ${this.#url}`)
        const lines = (rest + value).split('\n')
        rest = lines.pop() ?? ''
        for (const line of lines) {
          const event = JSON.parse(line) as wire.LogEndEvent
          if (event.event === 'result') return
          if (event.event === 'error') throw refusal(200, line, this.#url)
          if (event.event === 'log') yield event.data ?? new TextDecoder().decode(Uint8Array.from(atob(event.data_b64 ?? ''), (c) => c.charCodeAt(0)))
        }
      }
    } finally {
      signal?.removeEventListener('abort', leave)
      own.abort() // a caller that leaves early must not keep the request
    }
  }

  /** Kills a sandbox if it runs, and removes its record. */
  remove(name: string): Promise<void> {
    return this.#call('DELETE', ['sandboxes', name])
  }

  /**
   * Creates or updates a secret. With hosts, no sandbox sees the value: the proxy inserts it
   * into requests to them. Without hosts, an existing secret keeps its own.
   */
  putSecret(name: string, value: string, hosts?: string[]): Promise<wire.Secret> {
    const content: Body<wire.SecretRequest> = { value, hosts }
    return this.#call('PUT', ['secrets', name], content)
  }

  /** Removes a secret. */
  removeSecret(name: string): Promise<void> {
    return this.#call('DELETE', ['secrets', name])
  }

  /** Creates an empty workspace, a directory that outlives sandboxes. */
  createWorkspace(name: string): Promise<wire.Workspace> {
    const content: wire.WorkspaceRequest = { name }
    return this.#call('POST', ['workspaces'], content)
  }

  /** Removes a workspace with all its versions. */
  removeWorkspace(name: string): Promise<void> {
    return this.#call('DELETE', ['workspaces', name])
  }

  async #call<T>(method: string, path: string[], content?: object): Promise<T> {
    const text = await this.#send(method, path, content, {})
    return (text ? JSON.parse(text) : undefined) as T
  }

  /**
   * Sends a call that may take longer than fetch waits for a response, five minutes in
   * Node.js. The server responds at once, and sends keepalives until the result, which
   * has all output.
   */
  async #lasting<T>(path: string[], content: object, signal?: AbortSignal): Promise<T> {
    const text = await this.#send('POST', path, { ...content, streams: [] }, { Accept: 'application/x-ndjson' }, signal)
    const lines = text.trimEnd().split('\n')
    const { event, ...last } = JSON.parse(lines[lines.length - 1] || '{}') as { event?: string }
    if (event !== 'result') throw refusal(200, JSON.stringify(last), this.#url)
    const { error } = last as Partial<wire.RunAnswer>
    if (error?.hint) error.hint = asOptions(error.hint)
    return last as T
  }

  async #send(method: string, path: string[], content: object | undefined, headers: Record<string, string>, signal?: AbortSignal): Promise<string> {
    const end = Date.now() + this.#patienceMs
    for (;;) {
      try {
        return await this.#sendOnce(method, path, content, headers, signal)
      } catch (e) {
        if (!(e instanceof BrigError) || e.status !== 429 || e.field !== 'capacity' || !e.retryAfterMs) throw e
        // Add jitter, so that clients that were rejected together do not retry together.
        const wait = e.retryAfterMs * (1 + Math.random() / 4)
        if (Date.now() + wait > end) throw e
        await pause(wait, signal)
      }
    }
  }

  async #sendOnce(method: string, path: string[], content: object | undefined, headers: Record<string, string>, signal?: AbortSignal): Promise<string> {
    if (this.#key) headers['Authorization'] = `Bearer ${this.#key}`
    if (content) headers['Content-Type'] = 'application/json'
    // Follow no redirect: the other server would receive the body.
    const init: RequestInit = { method, headers, redirect: 'manual' }
    if (content) init.body = JSON.stringify(content)
    if (signal) init.signal = signal
    let answer: Response
    let text: string
    try {
      answer = await fetch(`${this.#url}/v1/${path.map(encodeURIComponent).join('/')}`, init)
      text = await answer.text()
    } catch (cause) {
      signal?.throwIfAborted()
      const hint = `check that brig serve runs at ${this.#url}`
      throw new BrigError('cannot reach the server', 'SB003', 'connection_failed', '', hint, 0, { cause })
    }
    if (!answer.ok) throw refusal(answer.status, text, this.#url, answer.headers.get('Retry-After'))
    return text
  }
}

/** Rejects plain HTTP to another machine. `URL` parses 127.1 as 127.0.0.1, like `fetch`. */
function rejectPlain(url: string): void {
  let at: URL
  try {
    at = new URL(url)
  } catch {
    return // a relative URL: fetch rejects it, or it is the page's own server
  }
  if (at.protocol !== 'http:' || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(at.hostname)) return
  const hint = 'use https, or permit it with insecureHttp or BRIG_INSECURE_HTTP=1'
  throw new BrigError(`plain HTTP to ${at.hostname} would expose the key on the network`, 'SB010', 'invalid_argument', 'url', hint)
}

function egress(rules: (string | EgressRule)[]): wire.EgressChange {
  return { rules: rules.map((r) => (typeof r === 'string' ? { host: r } : r)) }
}

function body(options: Options): Omit<Options, 'secrets' | 'egress' | 'workspace'> & Pick<wire.Spec & wire.RunRequest, 'secrets' | 'egress' | 'workspace'> {
  const { secrets, egress: rules, workspace, ...rest } = options
  return {
    ...rest,
    ...(secrets && { secrets: secrets.map((s) => (typeof s === 'string' ? { name: s } : s)) }),
    ...(rules && { egress: egress(rules) }),
    ...(workspace && { workspace: typeof workspace === 'string' ? { name: workspace, mode: 'direct' } : workspace }),
  }
}

/** Resolves after `ms` milliseconds, or rejects when the signal is aborted. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const off = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', off)
      resolve()
    }, ms)
    signal?.addEventListener('abort', off, { once: true })
  })
}

/** Returns a field or a hint of REST with the names of this package's options. */
function asOptions(text = ''): string {
  return text
    .replace(/\b(timeout|ttl)_ms\b/g, '$1Ms')
    .replace(/\bpause_after_ms\b/g, 'pauseAfterMs')
    .replace(/\bpause_files_only\b/g, 'pauseFilesOnly')
    .replace(/\begress\.rules\b/g, 'egress')
    .replace(/\bvalue_b64\b/g, 'value')
}

function refusal(status: number, text: string, url: string, retryAfter: string | null = null): BrigError {
  try {
    const { code, kind, message, field, hint } = (JSON.parse(text) as wire.ErrorAnswer).error
    if (code && kind) return new BrigError(message ?? '', code, kind, asOptions(field), asOptions(hint), status, undefined, Number(retryAfter) * 1000 || 0)
  } catch {
    // The response is not Brig's.
  }
  const hint = `check that brig serve runs at ${url}`
  return new BrigError(`the response is not from a Brig server (HTTP ${status})`, 'SB003', 'connection_failed', '', hint, status)
}
