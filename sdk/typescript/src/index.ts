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

/** An error that the server has told: what, by a stable code, in which field, and what to do about it. */
export class BrigError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly kind: string,
    readonly field = '',
    readonly hint = '',
    readonly status = 0,
    options?: ErrorOptions,
  ) {
    super(message, options)
    this.name = 'BrigError'
  }
}

/** A client of a Brig server. */
export class Brig {
  readonly #url: string
  readonly #key: string

  /**
   * The address and the key are `BRIG_URL` and `BRIG_API_KEY` where there is an
   * environment. A plain `http://` address of another machine is refused, since
   * whoever is on the way reads the key; `insecureHttp` or `BRIG_INSECURE_HTTP`
   * admits it.
   */
  constructor(options: { url?: string; key?: string; insecureHttp?: boolean } = {}) {
    const env = (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {}
    this.#url = (options.url ?? env['BRIG_URL'] ?? 'http://127.0.0.1:2744').replace(/\/+$/, '')
    this.#key = options.key ?? env['BRIG_API_KEY'] ?? ''
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
    const { ttlMs, ...rest } = spec
    return this.#call('POST', ['sandboxes'], { ...body(rest), ttl_ms: ttlMs })
  }

  /** Runs a command, or a script for the sandbox's shell, until it ends. */
  exec(name: string, command: string | string[], options: ExecOptions = {}, signal?: AbortSignal): Promise<ExecResult> {
    const { timeoutMs, ...rest } = options
    const what = typeof command === 'string' ? { shell: command } : { command }
    return this.#lasting(['sandboxes', name, 'exec'], { ...what, ...rest, timeout_ms: timeoutMs }, signal)
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
    return last as T
  }

  async #send(method: string, path: string[], content: object | undefined, headers: Record<string, string>, signal?: AbortSignal) {
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
      const hint = `is the server running at ${this.#url}? brig serve`
      throw new BrigError('cannot reach the server', 'SB003', 'connection_failed', '', hint, 0, { cause })
    }
    if (!answer.ok) throw refusal(answer.status, text, this.#url)
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
  const hint = 'use https, or admit it with insecureHttp or BRIG_INSECURE_HTTP=1'
  throw new BrigError(`plain HTTP to ${at.hostname} shows the key to whoever is on the way`, 'SB010', 'invalid_argument', 'url', hint)
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

function refusal(status: number, text: string, url: string): BrigError {
  try {
    const { code, kind, message, field, hint } = (JSON.parse(text) as { error: Record<string, string> }).error
    if (code && kind) return new BrigError(message ?? '', code, kind, field, hint, status)
  } catch {
    // It is not an answer of Brig's.
  }
  const hint = `is one running at ${url}? brig serve`
  return new BrigError(`what answered is not a Brig server (HTTP ${status})`, 'SB003', 'connection_failed', '', hint, status)
}
