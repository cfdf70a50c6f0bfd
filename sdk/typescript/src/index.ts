/**
 * What E2B's SDK cannot say to a Brig server: limits, secrets, workspaces, rules
 * of egress with ports and methods, and programs with arguments in a sandbox of
 * their own. For terminals, files and notebooks there is E2B's SDK, in sandboxes
 * that it makes itself.
 *
 * Nothing but `fetch` is needed.
 */

/** One rule; the first that matches decides, and what none matches is denied. */
export interface EgressRule {
  /** A name (`api.example.com`), or any name below one (`*.example.com`). */
  host?: string
  /** Instead of a host: a network or an address. */
  cidr?: string
  ports?: number[]
  methods?: string[]
  paths?: string[]
  deny?: boolean
}

/** A secret that commands have as a variable; by default the name in capitals. */
export interface SecretUse {
  name: string
  env?: string
}

/** A directory that outlives sandboxes, to have at `/workspace`. */
export interface WorkspaceUse {
  name: string
  /** What is written is kept when the sandbox ends (`direct`), when it is committed, or not at all. */
  mode?: 'read_only' | 'overlay' | 'direct'
  prefixes?: string[]
  capture?: string[]
  version?: number
}

/** What is kept for a sandbox, or a program, and no more. */
export interface Limits {
  /** Bytes, or for example `512MiB`. */
  memory?: number | string
  cpus?: number
  disk?: number | string
  processes?: number
  open_files?: number
  output?: number | string
}

/** What sandboxes and programs have in common. */
export interface Options {
  name?: string
  image?: string
  limits?: Limits
  labels?: Record<string, string>
  env?: Record<string, string>
  secrets?: (string | SecretUse)[]
  egress?: (string | EgressRule)[]
  workspace?: string | WorkspaceUse
  /** The least that must be enforced, by area: `{ memory: 'boundary' }`. */
  require?: Record<string, string>
}

/** What a sandbox is asked to be. */
export interface Spec extends Options {
  template?: string
  /** After how many milliseconds without use it ends. */
  ttlMs?: number
  /** After how many milliseconds without use it is paused until its next use; less than `ttlMs`. */
  pauseAfterMs?: number
}

/** A program, and what it is given. */
export interface Program extends Options {
  language?: 'python' | 'javascript' | 'typescript' | 'bash'
  /** Passed to the program's function `main`, whose value is the result. */
  arguments?: Record<string, unknown>
  /** Text files, put below `/workspace` before. */
  files?: Record<string, string>
  stdin?: string
  timeoutMs?: number
}

/** What else may be said of a command. */
export interface ExecOptions {
  cwd?: string
  env?: Record<string, string>
  stdin?: string
  timeoutMs?: number
  user?: 'user' | 'root'
}

/** A sandbox. */
export interface SandboxInfo {
  id: string
  name: string
  state: string
  provider: string
  labels?: Record<string, string>
}

/** How a command ended. One that fails is a result, too. */
export interface ExecResult {
  exit_code: number
  stdout: string
  stderr: string
  truncated: boolean
  timed_out: boolean
  oom_killed: boolean
  /** Why the sandbox ended while the program ran, for example `killed`. */
  sandbox_ended?: string
}

/** How a program ended. */
export interface RunResult<T = unknown> extends ExecResult {
  sandbox: string
  /** What `main` returned. `has_result` tells a null from no main at all. */
  result: T
  has_result: boolean
  error: { name: string; message: string; traceback?: string; code?: string; hint?: string } | null
  artifacts: { path: string; mime_type: string; size: number; content_b64: string }[]
}

/** An error that the server has reported: a message, a stable code, the option that is wrong, and the fix. */
export class BrigError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly kind: string,
    readonly field = '',
    readonly hint = '',
    readonly status = 0,
    options?: ErrorOptions,
    /** After how many milliseconds to ask again, if the server has said so. */
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
   * The address and the key are `BRIG_URL` and `BRIG_API_KEY` where there is an
   * environment. A plain `http://` address of another machine is refused, because
   * others on the network could read the key; `insecureHttp` or `BRIG_INSECURE_HTTP`
   * permits it.
   *
   * A server at its capacity refuses a call before any of it has begun. Such a call is
   * made again when the server has said to, for `patienceMs` in all (30 s); 0 is not at all.
   */
  constructor(options: { url?: string; key?: string; insecureHttp?: boolean; patienceMs?: number } = {}) {
    const env = (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {}
    this.#url = (options.url ?? env['BRIG_URL'] ?? 'http://127.0.0.1:2744').replace(/\/+$/, '')
    this.#key = options.key ?? env['BRIG_API_KEY'] ?? ''
    this.#patienceMs = options.patienceMs ?? 30_000
    const admitted = options.insecureHttp ?? /^(1|t|true)$/i.test(env['BRIG_INSECURE_HTTP'] ?? '')
    if (!admitted) refusePlain(this.#url)
  }

  /** Runs a program in a sandbox of its own, which is gone afterwards, whatever happens. */
  run<T = unknown>(code: string, program: Program = {}, signal?: AbortSignal): Promise<RunResult<T>> {
    const { timeoutMs, language = 'python', ...rest } = program
    return this.#lasting(['run'], { code, language, ...body(rest), timeout_ms: timeoutMs }, signal)
  }

  /** Starts a sandbox, and returns when it is running. */
  create(spec: Spec = {}): Promise<SandboxInfo> {
    const { ttlMs, pauseAfterMs, ...rest } = spec
    return this.#call('POST', ['sandboxes'], { ...body(rest), ttl_ms: ttlMs, pause_after_ms: pauseAfterMs })
  }

  /** Runs a command, or a script for the sandbox's shell, until it ends. */
  exec(name: string, command: string | string[], options: ExecOptions = {}, signal?: AbortSignal): Promise<ExecResult> {
    const { timeoutMs, ...rest } = options
    const what = typeof command === 'string' ? { shell: command } : { command }
    return this.#lasting(['sandboxes', name, 'exec'], { ...what, ...rest, timeout_ms: timeoutMs }, signal)
  }

  /**
   * Makes copies of a sandbox, with its memory, programs and files: all of them or none.
   * One copy may have a name, and be paused: it then takes only disk space.
   */
  async fork(name: string, options: { count?: number; name?: string; paused?: boolean; labels?: Record<string, string>; ttlMs?: number } = {}): Promise<SandboxInfo[]> {
    const { ttlMs, ...rest } = options
    const copies = await this.#call<{ sandboxes: SandboxInfo[] }>('POST', ['sandboxes', name, 'fork'], { ...rest, ttl_ms: ttlMs })
    return copies.sandboxes
  }

  /** Changes where a sandbox may connect to. */
  setEgress(name: string, rules: (string | EgressRule)[]): Promise<SandboxInfo> {
    return this.#call('PUT', ['sandboxes', name, 'egress'], egress(rules))
  }

  /** Makes a version of a sandbox's workspace of what is there now. */
  commit(name: string): Promise<{ version?: { number: number }; changed: number }> {
    return this.#call('POST', ['sandboxes', name, 'commit'])
  }

  /** Kills a sandbox if it lives, and forgets it. */
  remove(name: string): Promise<void> {
    return this.#call('DELETE', ['sandboxes', name])
  }

  /**
   * Keeps a secret. With hosts no sandbox ever sees it: it is put into requests to these.
   * Without, a secret that exists keeps those that it has.
   */
  putSecret(name: string, value: string, hosts?: string[]): Promise<{ name: string; version: number }> {
    return this.#call('PUT', ['secrets', name], { value, hosts })
  }

  /** Forgets a secret. */
  removeSecret(name: string): Promise<void> {
    return this.#call('DELETE', ['secrets', name])
  }

  /** Makes an empty directory that outlives sandboxes. */
  createWorkspace(name: string): Promise<{ name: string }> {
    return this.#call('POST', ['workspaces'], { name })
  }

  /** Forgets a workspace with all its versions. */
  removeWorkspace(name: string): Promise<void> {
    return this.#call('DELETE', ['workspaces', name])
  }

  async #call<T>(method: string, path: string[], content?: object): Promise<T> {
    const text = await this.#send(method, path, content, {})
    return (text ? JSON.parse(text) : undefined) as T
  }

  /**
   * A call that may last longer than fetch waits for an answer, which is five
   * minutes in Node.js: it is answered at once, and shows that it lives until it
   * has its result. All output is in that.
   */
  async #lasting<T>(path: string[], content: object, signal?: AbortSignal): Promise<T> {
    const text = await this.#send('POST', path, { ...content, streams: [] }, { Accept: 'application/x-ndjson' }, signal)
    const lines = text.trimEnd().split('\n')
    const { event, ...last } = JSON.parse(lines[lines.length - 1] || '{}') as { event?: string }
    if (event !== 'result') throw refusal(200, JSON.stringify(last), this.#url)
    const { error } = last as { error?: { hint?: string } | null }
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
        // Clients that were refused at one moment do not come back at one moment.
        const wait = e.retryAfterMs * (1 + Math.random() / 4)
        if (Date.now() + wait > end) throw e
        await pause(wait, signal)
      }
    }
  }

  async #sendOnce(method: string, path: string[], content: object | undefined, headers: Record<string, string>, signal?: AbortSignal): Promise<string> {
    if (this.#key) headers['Authorization'] = `Bearer ${this.#key}`
    if (content) headers['Content-Type'] = 'application/json'
    // What is sent is for this server: a redirect would take the body along.
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

/** Refuses plain HTTP to another machine. `URL` reads 127.1 as 127.0.0.1, and so does `fetch`. */
function refusePlain(url: string): void {
  let at: URL
  try {
    at = new URL(url)
  } catch {
    return // it is relative: fetch refuses it, or it is the page's own server
  }
  if (at.protocol !== 'http:' || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(at.hostname)) return
  const hint = 'use https, or permit it with insecureHttp or BRIG_INSECURE_HTTP=1'
  throw new BrigError(`plain HTTP to ${at.hostname} would expose the key on the network`, 'SB010', 'invalid_argument', 'url', hint)
}

function egress(rules: (string | EgressRule)[]): { rules: EgressRule[] } {
  return { rules: rules.map((r) => (typeof r === 'string' ? { host: r } : r)) }
}

function body(options: Options): object {
  const { secrets, egress: rules, workspace, ...rest } = options
  return {
    ...rest,
    ...(secrets && { secrets: secrets.map((s) => (typeof s === 'string' ? { name: s } : s)) }),
    ...(rules && { egress: egress(rules) }),
    ...(workspace && { workspace: typeof workspace === 'string' ? { name: workspace, mode: 'direct' } : workspace }),
  }
}

/** Resolves after so many milliseconds, or rejects when the signal says so. */
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
    .replace(/\begress\.rules\b/g, 'egress')
    .replace(/\bvalue_b64\b/g, 'value')
}

function refusal(status: number, text: string, url: string, retryAfter: string | null = null): BrigError {
  try {
    const { code, kind, message, field, hint } = (JSON.parse(text) as { error: Record<string, string> }).error
    if (code && kind) return new BrigError(message ?? '', code, kind, asOptions(field), asOptions(hint), status, undefined, Number(retryAfter) * 1000 || 0)
  } catch {
    // It is not an answer of Brig's.
  }
  const hint = `check that brig serve runs at ${url}`
  return new BrigError(`the response is not from a Brig server (HTTP ${status})`, 'SB003', 'connection_failed', '', hint, status)
}
