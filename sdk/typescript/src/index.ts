/**
 * A client for a Brig server. It has what E2B's SDK lacks: limits, secrets, workspaces,
 * egress rules with ports and methods, programs with arguments in their own sandboxes,
 * and options of sandboxes and their copies. E2B's SDK does not see the sandboxes that this
 * client creates, so the client also has their files, commands, processes and contexts.
 *
 * The client needs only `fetch`. So it does not connect to the ports of a sandbox.
 */

import { asOptions, BrigError, invalid, refusal, unreachable } from './error.js'
import { chunkText, egress, encode, encodeCommand, encodeFork, encodeProgram, encodeSpec } from './request.js'
import type { Code, CodeOptions, ContextOptions, EgressRule, ExecOptions, ForkOptions, ProcessOptions, Program, Spec, VolumeAttributes } from './request.js'
import type * as wire from './wire.js'

export { BrigError } from './error.js'
export type { Code, CodeOptions, ContextOptions, EgressRule, ExecOptions, ForkOptions, Limits, Options, ProcessOptions, Program, SecretUse, Spec, VolumeAttributes, VolumeMount, WorkspaceUse } from './request.js'

/** The state of a sandbox. */
export type SandboxInfo = wire.Sandbox

/** The result of a command, even of one that fails. */
export type ExecResult = wire.Result

/** The result of code in a context. */
export type CodeResult = wire.CodeAnswer

/** A file, a directory or a link. */
export type FileInfo = wire.Entry

/** A volume: a directory that several sandboxes mount at the same time. */
export type VolumeInfo = wire.Volume

/** A file, a directory or a link in a volume. */
export type VolumeFile = wire.VolumeEntry

/** The result of a program. `has_result` is false if `main` was not called. */
export interface RunResult<T = unknown> extends Omit<wire.RunAnswer, 'result'> {
  /** The return value of `main`. */
  result: T
}

/** Functions that receive output while a program runs. Its result has all output, too. */
export interface OutputHandlers {
  onStdout?: (text: string) => void
  onStderr?: (text: string) => void
}

/** Functions that receive output and displayed values while code runs. */
export interface CodeHandlers extends OutputHandlers {
  onResult?: (value: wire.Rich) => void
}

/** A call to the server. */
interface Call {
  method: string
  path: (string | number)[]
  query?: Record<string, string | number | boolean | string[] | undefined>
  /** An object, which is sent as JSON, or bytes or a blob. */
  content?: object | undefined
  /** Whether the response is a stream of events. */
  events?: boolean
  signal?: AbortSignal | undefined
}

/** An event of a stream. */
type Event = { event: string } & Partial<wire.Chunk & wire.Rich & wire.Change>

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

  // Programs in their own sandboxes.

  /** Runs code in a new sandbox, which is removed afterwards in any case. */
  run<T = unknown>(code: string, program: Code & OutputHandlers = {}, signal?: AbortSignal): Promise<RunResult<T>> {
    const { language = 'python', onStdout, onStderr, ...rest } = program
    return this.#lasting(['run'], { code, language, ...encodeProgram(rest) }, { onStdout, onStderr }, signal)
  }

  /** Runs a program with arguments in a new sandbox, without a shell. */
  runCommand(command: string[], program: Program & OutputHandlers = {}, signal?: AbortSignal): Promise<RunResult> {
    const { onStdout, onStderr, ...rest } = program
    return this.#lasting(['run'], { command, ...encodeProgram(rest) }, { onStdout, onStderr }, signal)
  }

  /** Returns the result of a run by the name of its sandbox, for a limited time after its end. */
  getRun<T = unknown>(name: string): Promise<RunResult<T>> {
    return this.#call('GET', ['runs', name])
  }

  /** Lists the runs whose results are kept, the last one to end first, without output and values. */
  listRuns(options: { status?: wire.RunSummary['status'] } = {}): Promise<wire.RunSummary[]> {
    return this.#pages(['runs'], 'runs', { status: options.status })
  }

  // Sandboxes.

  /** Creates a sandbox, and returns when it is running. */
  create(spec: Spec = {}): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes'], encodeSpec(spec))
  }

  /** Returns the current state of a sandbox. */
  get(name: string): Promise<SandboxInfo> {
    return this.#call('GET', ['sandboxes', name])
  }

  /** Lists sandboxes, newest first, including those that have ended and were not removed. */
  list(options: { labels?: Record<string, string>; state?: SandboxInfo['state'] } = {}): Promise<SandboxInfo[]> {
    const label = Object.entries(options.labels ?? {}).map(([key, value]) => `${key}=${value}`)
    return this.#pages(['sandboxes'], 'sandboxes', { label, state: options.state })
  }

  /**
   * Creates copies of a sandbox, with its memory, programs and files. If one fails, none is created.
   * A single copy can have a name and be paused: it then uses only disk space.
   */
  async fork(name: string, options: ForkOptions = {}): Promise<SandboxInfo[]> {
    return (await this.#call<wire.Copies>('POST', ['sandboxes', name, 'fork'], encodeFork(options))).sandboxes
  }

  /**
   * Saves a sandbox's memory and files on disk until its next use, which resumes it. With
   * `filesOnly` no program prevents that: contexts and processes end, and the resume boots it
   * again with its files, without those in `/tmp` and `/dev/shm`.
   */
  pause(name: string, options: { filesOnly?: boolean } = {}): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes', name, 'pause'], encode(options))
  }

  /** Continues a paused sandbox ahead of its next use. */
  resume(name: string): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes', name, 'resume'], {})
  }

  /** Renews the lease, so that the sandbox lives for `ttlMs` from now. */
  extend(name: string, ttlMs: number): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes', name, 'extend'], encode({ ttlMs }))
  }

  /** Terminates the programs, and kills them after `graceMs`. The record and logs stay. */
  stop(name: string, options: { graceMs?: number } = {}): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes', name, 'stop'], encode(options))
  }

  /** Kills the programs immediately. The record and logs stay. */
  kill(name: string): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes', name, 'kill'], {})
  }

  /** Kills a sandbox if it runs, and removes its record. */
  remove(name: string): Promise<void> {
    return this.#call('DELETE', ['sandboxes', name])
  }

  /** Replaces the egress rules of a sandbox. Without `bandwidth`, it stays unchanged; 0 is unlimited. */
  setEgress(name: string, rules: (string | EgressRule)[], options: { bandwidth?: number | string } = {}): Promise<SandboxInfo> {
    return this.#call('PUT', ['sandboxes', name, 'egress'], egress(rules, options.bandwidth))
  }

  /** Measures the processor time, memory, disk and network of a sandbox. That is no use of it. */
  usage(name: string): Promise<wire.SandboxUsage> {
    return this.#call('GET', ['sandboxes', name, 'usage'])
  }

  /** Verifies in the sandbox and on its host that its limits hold. The result is in `enforcement`. */
  attest(name: string): Promise<SandboxInfo> {
    return this.#call('POST', ['sandboxes', name, 'attest'], {})
  }

  /** Returns the output of a sandbox's programs, or its last lines, also after the sandbox has ended. */
  async logs(name: string, options: { tail?: number; times?: boolean } = {}): Promise<string> {
    return (await this.#answer({ method: 'GET', path: ['sandboxes', name, 'logs'], query: options })).text
  }

  /**
   * Yields the output of a sandbox's programs, or its last lines, and then what they
   * write until the sandbox ends. Reading it is a use of the sandbox.
   */
  async *followLogs(name: string, options: { tail?: number; times?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<string> {
    const { signal, ...query } = options
    for await (const event of this.#events({ method: 'GET', path: ['sandboxes', name, 'logs'], query: { follow: true, ...query }, signal })) {
      if (event.event === 'log') yield chunkText(event)
    }
  }

  // Commands, processes and contexts of a sandbox.

  /** Runs a command, or a script in the sandbox's shell, and waits until it ends. */
  exec(name: string, command: string | string[], options: ExecOptions & OutputHandlers = {}, signal?: AbortSignal): Promise<ExecResult> {
    const { onStdout, onStderr, ...rest } = options
    return this.#lasting(['sandboxes', name, 'exec'], encodeCommand(command, rest), { onStdout, onStderr }, signal)
  }

  /** Lists the commands of a sandbox with their results, including running ones. */
  async listExecs(name: string): Promise<wire.Execution[]> {
    return (await this.#call<wire.Executions>('GET', ['sandboxes', name, 'execs'])).execs
  }

  /** Returns a command by its ID, with its result so far. */
  getExec(name: string, id: string): Promise<wire.Execution> {
    return this.#call('GET', ['sandboxes', name, 'execs', id])
  }

  /** Starts a program, or a script in the sandbox's shell, in the background. */
  startProcess(name: string, command: string | string[], options: ProcessOptions = {}): Promise<wire.Process> {
    return this.#call('POST', ['sandboxes', name, 'processes'], encodeCommand(command, options))
  }

  /** Lists the processes in the background, including some that have ended. */
  async listProcesses(name: string): Promise<wire.Process[]> {
    return (await this.#call<wire.Processes>('GET', ['sandboxes', name, 'processes'])).processes
  }

  /** Receives the output of a process from an offset on, and waits until the process ends. */
  async attachProcess(name: string, pid: number, options: OutputHandlers & { offset?: number; signal?: AbortSignal } = {}): Promise<ExecResult> {
    const { offset, signal, ...handlers } = options
    const call: Call = { method: 'GET', path: ['sandboxes', name, 'processes', pid, 'output'], query: { offset }, signal }
    return this.#lastOf(call, handlers)
  }

  /** Writes to the standard input of a process. */
  writeInput(name: string, pid: number, data: string | Uint8Array): Promise<void> {
    return this.#call('POST', ['sandboxes', name, 'processes', pid, 'input'], asBytes(data))
  }

  /** Closes the standard input of a process. */
  closeInput(name: string, pid: number): Promise<void> {
    return this.#call('POST', ['sandboxes', name, 'processes', pid, 'close_input'])
  }

  /** Sends a signal to a process, for example `SIGTERM`. `SIGKILL` also kills its descendants. */
  signalProcess(name: string, pid: number, signal: string): Promise<void> {
    return this.#call('POST', ['sandboxes', name, 'processes', pid, 'signal'], { signal })
  }

  /** Changes the size of a process's terminal. */
  resizeTerminal(name: string, pid: number, size: wire.Terminal): Promise<void> {
    return this.#call('POST', ['sandboxes', name, 'processes', pid, 'resize'], size)
  }

  /** Runs code in a context, by default that of the language, which keeps its variables. */
  runCode(name: string, code: string, options: CodeOptions & CodeHandlers = {}, signal?: AbortSignal): Promise<CodeResult> {
    const { onStdout, onStderr, onResult, ...rest } = options
    const call: Call = { method: 'POST', path: ['sandboxes', name, 'code', 'stream'], content: { code, ...encode(rest) }, signal }
    return this.#lastOf(call, { onStdout, onStderr, onResult })
  }

  /** Creates a context: an interpreter that keeps its variables. */
  createContext(name: string, options: ContextOptions = {}): Promise<wire.Context> {
    return this.#call('POST', ['sandboxes', name, 'contexts'], encode(options))
  }

  /** Lists the contexts of a sandbox with their states. */
  async listContexts(name: string): Promise<wire.Context[]> {
    return (await this.#call<wire.Contexts>('GET', ['sandboxes', name, 'contexts'])).contexts
  }

  /** Interrupts the running code of a context, like Ctrl-C. */
  interruptContext(name: string, id: string): Promise<void> {
    return this.#call('POST', ['sandboxes', name, 'contexts', id, 'interrupt'])
  }

  /** Restarts the interpreter of a context. Its variables are lost. */
  restartContext(name: string, id: string): Promise<void> {
    return this.#call('POST', ['sandboxes', name, 'contexts', id, 'restart'])
  }

  /** Ends the interpreter of a context, and removes the context. */
  removeContext(name: string, id: string): Promise<void> {
    return this.#call('DELETE', ['sandboxes', name, 'contexts', id])
  }

  // Files of a sandbox. A relative path starts in the directory of commands.

  /** Returns the content of a file, or `length` bytes from `offset` on. */
  async readFile(name: string, path: string, options: { user?: string; offset?: number; length?: number } = {}): Promise<Uint8Array> {
    const call: Call = { method: 'GET', path: ['sandboxes', name, 'files', 'content'], query: { path, ...options } }
    return (await this.#answer(call)).bytes
  }

  /** Writes a file, and creates missing parent directories. `mode` has permission bits, for example 0o600. */
  writeFile(name: string, path: string, data: string | Uint8Array, options: { user?: string; mode?: number } = {}): Promise<FileInfo> {
    const mode = options.mode?.toString(8).padStart(4, '0')
    return this.#call('PUT', ['sandboxes', name, 'files', 'content'], asBytes(data), { path, ...options, mode })
  }

  /** Lists the entries of a directory. */
  async listFiles(name: string, path: string, options: { user?: string; depth?: number } = {}): Promise<FileInfo[]> {
    return (await this.#call<wire.Entries>('GET', ['sandboxes', name, 'files'], undefined, { path, ...options })).entries
  }

  /** Returns the type, size, mode and owner of a file. */
  statFile(name: string, path: string, options: { user?: string } = {}): Promise<FileInfo> {
    return this.#call('GET', ['sandboxes', name, 'files', 'stat'], undefined, { path, ...options })
  }

  /** Creates a directory, and its missing parents. */
  makeDirectory(name: string, path: string, options: { user?: string } = {}): Promise<FileInfo> {
    return this.#call('POST', ['sandboxes', name, 'files', 'mkdir'], { path, ...options })
  }

  /** Moves or renames a file or directory. */
  moveFile(name: string, from: string, to: string, options: { user?: string } = {}): Promise<FileInfo> {
    return this.#call('POST', ['sandboxes', name, 'files', 'move'], { from, to, ...options })
  }

  /** Joins files into one, in order, and removes them. It completes an upload in parts. */
  composeFile(name: string, sources: string[], destination: string, options: { user?: string } = {}): Promise<FileInfo> {
    return this.#call('POST', ['sandboxes', name, 'files', 'compose'], { source_paths: sources, destination, ...options })
  }

  /** Removes a file, or a directory with its contents. */
  removeFile(name: string, path: string, options: { user?: string } = {}): Promise<void> {
    return this.#call('DELETE', ['sandboxes', name, 'files'], undefined, { path, ...options })
  }

  /**
   * Watches a directory. The promise is fulfilled when the watch has begun, with a generator of
   * the changes. Watching is a use of the sandbox until the generator or the signal ends it.
   */
  async watchFiles(name: string, path: string, options: { user?: string; recursive?: boolean; signal?: AbortSignal } = {}): Promise<AsyncGenerator<wire.Change>> {
    const { signal, ...query } = options
    const events = this.#events({ method: 'GET', path: ['sandboxes', name, 'files', 'watch'], query: { path, ...query }, signal })
    for (let begun = false; !begun; ) begun = (await events.next()).value?.event === 'watching'
    return (async function* () {
      for await (const { event, ...change } of events) if (event === 'change') yield change as wire.Change
    })()
  }

  // Volumes, and their files. A path begins at the root of the volume, with or without a slash. The
  // calls do not depend on the owner and the mode of files.

  /** Creates an empty volume. Its `size` is fixed: bytes, or for example `2GiB`; by default the server's. */
  createVolume(name: string, options: { size?: number | string } = {}): Promise<VolumeInfo> {
    return this.#call('POST', ['volumes'], { name, ...options })
  }

  /** Lists the volumes, the oldest first. */
  async listVolumes(): Promise<VolumeInfo[]> {
    return (await this.#call<wire.Volumes>('GET', ['volumes'])).volumes
  }

  /** Returns a volume by its name or ID. */
  getVolume(name: string): Promise<VolumeInfo> {
    return this.#call('GET', ['volumes', name])
  }

  /** Removes a volume with its files. Sandboxes that have mounted it keep it until they end. */
  removeVolume(name: string): Promise<void> {
    return this.#call('DELETE', ['volumes', name])
  }

  /** Returns the content of a file of a volume. */
  async readVolumeFile(name: string, path: string): Promise<Uint8Array> {
    return (await this.#answer({ method: 'GET', path: ['volumes', name, 'files', 'content'], query: { path } })).bytes
  }

  /** Yields the content of a file of a volume in chunks. A caller that leaves early ends the download. */
  async *streamVolumeFile(name: string, path: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array> {
    const { signal } = options
    const answer = await this.#send({ method: 'GET', path: ['volumes', name, 'files', 'content'], query: { path }, signal })
    const reader = answer.body?.getReader()
    try {
      while (reader) {
        const { done, value } = await this.#received(reader.read(), signal)
        if (done) break
        yield value
      }
    } finally {
      await reader?.cancel().catch(() => undefined) // a caller that leaves early must not keep the request
    }
  }

  /** Writes a file of a volume. `force` creates missing parents, and replaces an existing file. */
  writeVolumeFile(name: string, path: string, data: string | Uint8Array | Blob, options: VolumeAttributes & { force?: boolean } = {}): Promise<VolumeFile> {
    const mode = options.mode?.toString(8).padStart(4, '0')
    return this.#call('PUT', ['volumes', name, 'files', 'content'], asBytes(data), { path, ...options, mode })
  }

  /** Lists the entries of a directory of a volume, sorted by path. */
  async listVolumeFiles(name: string, path = '/', options: { depth?: number } = {}): Promise<VolumeFile[]> {
    return (await this.#call<wire.VolumeEntries>('GET', ['volumes', name, 'files'], undefined, { path, ...options })).entries
  }

  /** Returns the type, size, mode and owner of a path in a volume. A link is not followed. */
  statVolumeFile(name: string, path: string): Promise<VolumeFile> {
    return this.#call('GET', ['volumes', name, 'files', 'stat'], undefined, { path })
  }

  /** Creates a directory in a volume. `force` creates missing parents, and accepts an existing directory. */
  makeVolumeDirectory(name: string, path: string, options: VolumeAttributes & { force?: boolean } = {}): Promise<VolumeFile> {
    return this.#call('POST', ['volumes', name, 'files', 'mkdir'], { path, ...options })
  }

  /** Changes the mode or the owner of a path in a volume. */
  setVolumeAttributes(name: string, path: string, attributes: VolumeAttributes): Promise<VolumeFile> {
    return this.#call('PATCH', ['volumes', name, 'files'], { path, ...attributes })
  }

  /** Removes a file, or a directory with its contents, from a volume. */
  removeVolumeFile(name: string, path: string): Promise<void> {
    return this.#call('DELETE', ['volumes', name, 'files'], undefined, { path })
  }

  // Workspaces, secrets, images and templates.

  /** Saves the current files of a sandbox as a new version of its workspace. */
  commit(name: string): Promise<wire.WorkspaceCommit> {
    return this.#call('POST', ['sandboxes', name, 'commit'])
  }

  /** Creates an empty workspace, a directory that outlives sandboxes. */
  createWorkspace(name: string): Promise<wire.Workspace> {
    return this.#call('POST', ['workspaces'], { name })
  }

  /** Returns a file of a workspace by its path in the sandbox. Version 0 is the newest. */
  async readWorkspaceFile(name: string, path: string, version = 0): Promise<Uint8Array> {
    return (await this.#answer({ method: 'GET', path: ['workspaces', name, 'versions', version, 'files', 'content'], query: { path } })).bytes
  }

  /** Lists the workspaces with their newest versions. */
  async listWorkspaces(): Promise<wire.Workspace[]> {
    return (await this.#call<wire.Workspaces>('GET', ['workspaces'])).workspaces
  }

  /** Lists the versions of a workspace with their sizes and creators. */
  async listWorkspaceVersions(name: string): Promise<wire.WorkspaceVersion[]> {
    return (await this.#call<wire.WorkspaceVersions>('GET', ['workspaces', name, 'versions'])).versions
  }

  /** Lists the files of a version, or those at and below a path. Version 0 is the newest. */
  async listWorkspaceFiles(name: string, options: { path?: string; version?: number } = {}): Promise<wire.WorkspaceFile[]> {
    const { path, version = 0 } = options
    return (await this.#call<wire.WorkspaceFiles>('GET', ['workspaces', name, 'versions', version, 'files'], undefined, { path })).files
  }

  /** Lists the paths that differ between two versions. Version 0 is the empty workspace. */
  async diffWorkspace(name: string, from: number, to: number): Promise<wire.WorkspaceChange[]> {
    return (await this.#call<wire.WorkspaceDiff>('GET', ['workspaces', name, 'diff'], undefined, { from, to })).changes
  }

  /** Creates a new version with the content of an old one. No version is lost. */
  restoreWorkspace(name: string, version: number): Promise<wire.WorkspaceVersion> {
    return this.#call('POST', ['workspaces', name, 'restore'], { version })
  }

  /** Removes a workspace with all its versions. */
  removeWorkspace(name: string): Promise<void> {
    return this.#call('DELETE', ['workspaces', name])
  }

  /**
   * Creates or updates a secret. With hosts, no sandbox sees the value: the proxy inserts it
   * into requests to them. Without hosts, an existing secret keeps its own.
   */
  putSecret(name: string, value: string, hosts?: string[]): Promise<wire.Secret> {
    return this.#call('PUT', ['secrets', name], { value, hosts })
  }

  /** Lists secrets, without their values. */
  async listSecrets(): Promise<wire.Secret[]> {
    return (await this.#call<wire.Secrets>('GET', ['secrets'])).secrets
  }

  /** Removes a secret. */
  removeSecret(name: string): Promise<void> {
    return this.#call('DELETE', ['secrets', name])
  }

  /** Lists the images from which sandboxes can be created. */
  async listImages(): Promise<wire.Image[]> {
    return (await this.#call<wire.Images>('GET', ['images'])).images
  }

  /** Pulls an image from a registry. The server does not store the password. */
  pullImage(ref: string, options: Omit<wire.PullRequest, 'ref'> = {}): Promise<wire.Image> {
    return this.#lastOf({ method: 'POST', path: ['images', 'pull', 'stream'], content: { ref, ...options } }, {})
  }

  /** Lists the templates from which sandboxes can be created. */
  async listTemplates(): Promise<wire.Template[]> {
    return (await this.#call<wire.Templates>('GET', ['templates'])).templates
  }

  async #call<T>(method: string, path: Call['path'], content?: object, query: Call['query'] = {}): Promise<T> {
    const { text } = await this.#answer({ method, path, query, content })
    return (text ? JSON.parse(text) : undefined) as T
  }

  /** Returns the items of all pages of a list. */
  async #pages<T>(path: string[], items: string, query: Call['query']): Promise<T[]> {
    const all: T[] = []
    for (let cursor: string | undefined; cursor !== ''; ) {
      const page: Record<string, unknown> = await this.#call('GET', path, undefined, { ...query, limit: 200, cursor })
      all.push(...(page[items] as T[]))
      cursor = page['next_cursor'] as string
    }
    return all
  }

  /**
   * Makes a call that may take longer than fetch waits for a response, five minutes in
   * Node.js. The server responds at once, and sends keepalives until the result, which
   * has all output.
   */
  #lasting<T>(path: string[], content: object, handlers: Handlers, signal?: AbortSignal): Promise<T> {
    const streams = [...(handlers.onStdout ? ['stdout'] : []), ...(handlers.onStderr ? ['stderr'] : [])]
    return this.#lastOf({ method: 'POST', path, content: { ...content, streams }, signal }, handlers)
  }

  /** Gives the output of a stream of events to functions, and returns the result, the last event. */
  async #lastOf<T>(call: Call, handlers: Handlers): Promise<T> {
    for await (const event of this.#events(call)) {
      if (event.event === 'stdout') handlers.onStdout?.(chunkText(event))
      else if (event.event === 'stderr') handlers.onStderr?.(chunkText(event))
      else if (event.event === 'output') handlers.onResult?.(withoutEvent(event) as wire.Rich)
      else if (event.event === 'result') {
        const last = withoutEvent(event) as Partial<wire.RunAnswer>
        if (last.error?.hint) last.error.hint = asOptions(last.error.hint)
        return last as T
      }
    }
    throw unreachable('the connection ended before the result', this.#url)
  }

  /** Yields the events of a response. The last one is the result. A caller that leaves early ends the call. */
  async *#events(call: Call): AsyncGenerator<Event> {
    const own = new AbortController()
    const { signal } = call
    const leave = () => own.abort(signal?.reason)
    signal?.throwIfAborted()
    signal?.addEventListener('abort', leave, { once: true })
    try {
      const answer = await this.#send({ ...call, events: true, signal: own.signal })
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader()
      for (let rest = ''; reader; ) {
        const { done, value } = await this.#received(reader.read(), own.signal)
        if (done) break
        const lines = (rest + value).split('\n')
        rest = lines.pop() ?? ''
        for (const line of lines) {
          const event = JSON.parse(line) as Event
          if (event.event === 'error') throw refusal(200, line, this.#url)
          yield event
          if (event.event === 'result') return
        }
      }
      throw unreachable('the connection ended before the result', this.#url)
    } finally {
      signal?.removeEventListener('abort', leave)
      own.abort() // a caller that leaves early must not keep the request
    }
  }

  /** Returns the body of a response, as text or as bytes. */
  async #answer(call: Call): Promise<{ bytes: Uint8Array; text: string }> {
    const answer = await this.#send(call)
    const bytes = new Uint8Array(await this.#received(answer.arrayBuffer(), call.signal))
    return {
      bytes,
      get text() {
        return new TextDecoder().decode(bytes)
      },
    }
  }

  /** Makes a call until the server has capacity for it, and returns the successful response. */
  async #send(call: Call): Promise<Response> {
    const end = Date.now() + this.#patienceMs
    for (;;) {
      try {
        return await this.#sendOnce(call)
      } catch (e) {
        if (!(e instanceof BrigError) || e.status !== 429 || e.field !== 'capacity' || !e.retryAfterMs) throw e
        // Add jitter, so that clients that were rejected together do not retry together.
        const wait = e.retryAfterMs * (1 + Math.random() / 4)
        if (Date.now() + wait > end) throw e
        await pause(wait, call.signal)
      }
    }
  }

  async #sendOnce({ method, path, query = {}, content, events, signal }: Call): Promise<Response> {
    const headers: Record<string, string> = events ? { Accept: 'application/x-ndjson' } : {}
    if (this.#key) headers['Authorization'] = `Bearer ${this.#key}`
    // Follow no redirect: the other server would receive the body.
    const init: RequestInit = { method, headers, redirect: 'manual' }
    if (content) {
      const binary = content instanceof Uint8Array || content instanceof Blob
      headers['Content-Type'] = binary ? 'application/octet-stream' : 'application/json'
      init.body = binary ? (content as Uint8Array<ArrayBuffer> | Blob) : JSON.stringify(content)
    }
    if (signal) init.signal = signal
    const parameters = new URLSearchParams()
    for (const [key, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) parameters.append(key, String(one))
    }
    const search = String(parameters)
    const url = `${this.#url}/v1/${path.map(encodeURIComponent).join('/')}${search && `?${search}`}`
    const answer = await this.#received(fetch(url, init), signal)
    if (answer.ok) return answer
    const text = await this.#received(answer.text(), signal)
    throw refusal(answer.status, text, this.#url, answer.headers.get('Retry-After'))
  }

  /** Returns what the server sends. An error of the connection becomes one with a hint. */
  async #received<T>(response: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    try {
      return await response
    } catch (cause) {
      signal?.throwIfAborted()
      throw unreachable('cannot reach the server', this.#url, cause)
    }
  }
}

/** Functions that receive events. They may be missing. */
type Handlers = { [K in keyof CodeHandlers]: CodeHandlers[K] | undefined }

function withoutEvent({ event: _, ...rest }: Event): object {
  return rest
}

function asBytes<T extends Uint8Array | Blob>(data: string | T): Uint8Array | T {
  return typeof data === 'string' ? new TextEncoder().encode(data) : data
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
  throw invalid(`plain HTTP to ${at.hostname} would expose the key on the network`, 'url', 'use https, or permit it with insecureHttp or BRIG_INSECURE_HTTP=1')
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
