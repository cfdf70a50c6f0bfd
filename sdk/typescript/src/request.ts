/** The options of calls, and the requests that send them. */

import { invalid } from './error.js'
import type * as wire from './wire.js'

/** An egress rule. The first matching rule decides. Connections that no rule matches are denied. */
export type EgressRule = wire.EgressRule

/** A secret and its environment variable; by default the name in upper case. */
export type SecretUse = wire.SecretUse

/** A workspace of a sandbox, at `/workspace`. */
export type WorkspaceUse = Omit<wire.WorkspaceUse, 'id'>

/** A volume of a sandbox, which other sandboxes can mount at the same time. */
export type VolumeMount = Omit<wire.VolumeMount, 'id'>

/** The mode of a path in a volume, for example 0o644, and the IDs of its owner. */
export type VolumeAttributes = Omit<wire.VolumeAttributesRequest, 'path'>

/** The limits of a sandbox or program. Sizes are bytes, or for example `512MiB`. */
export type Limits = wire.LimitsRequest

type Camel<S extends string> = S extends `${infer A}_${infer B}` ? `${A}${Capitalize<Camel<B>>}` : S

/** The fields of a request, with names in camel case. So each field of REST is an option. */
type Fields<T> = { [K in keyof T as Camel<K & string>]: T[K] }

/** The options that have another type than the fields of REST. */
export interface Options {
  secrets?: (string | SecretUse)[]
  /** Rules, or the hosts to allow. Default: no network access. */
  egress?: (string | EgressRule)[]
  /** Bytes per second in each direction; by default unlimited. */
  bandwidth?: number | string
  workspace?: string | WorkspaceUse
  /** Volumes to mount, as objects or as `name:path` or `name:path:ro`. */
  volumes?: (string | VolumeMount)[]
}

/** The specification of a sandbox. */
export interface Spec extends Omit<Fields<wire.Spec>, keyof Options>, Options {}

/** The options of a program, except its code or command. */
export interface Program extends Omit<Fields<wire.RunRequest>, keyof Options | 'code' | 'command' | 'language' | 'files' | 'stdin' | 'stdinB64'>, Options {
  /** Files to write below `/workspace` before the program starts. */
  files?: Record<string, string | Uint8Array>
  stdin?: string | Uint8Array
}

/** The options of code. */
export interface Code extends Program {
  language?: 'python' | 'javascript' | 'typescript' | 'bash'
}

/** The options of a command. */
export interface ExecOptions extends Omit<Fields<wire.ExecRequest>, 'command' | 'shell' | 'stdin' | 'stdinB64'> {
  stdin?: string | Uint8Array
}

/** The options of a process in the background. */
export type ProcessOptions = Omit<Fields<wire.ProcessRequest>, 'command' | 'shell'>

/** The options of code in a context. */
export type CodeOptions = Omit<Fields<wire.CodeRequest>, 'code'>

/** The options of a context. */
export type ContextOptions = Fields<wire.ContextRequest>

/** The options of copies. Without an option, it is as for the original. */
export interface ForkOptions extends Omit<Fields<wire.ForkRequest>, 'egress' | 'volumes'> {
  /** Rules instead of those of the original. An empty list denies all connections. */
  egress?: (string | EgressRule)[]
  /** Bytes per second in each direction, with `egress`; by default unlimited. */
  bandwidth?: number | string
  /** Volumes instead of those of the original, if it is paused with `filesOnly`. An empty list mounts none. */
  volumes?: (string | VolumeMount)[]
}

/** Encodes options. JSON leaves out a field without a value. */
export function encode(options: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(options).map(([name, value]) => [name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), value]))
}

/** Encodes the options of sandboxes and programs. */
export function encodeSpec(options: Spec | Program): Record<string, unknown> {
  const { secrets, egress: rules, bandwidth, workspace, volumes, ...rest } = options
  return {
    ...encode(rest),
    secrets: secrets?.map((s) => (typeof s === 'string' ? { name: s } : s)),
    egress: rules || bandwidth !== undefined ? egress(rules ?? [], bandwidth) : undefined,
    workspace: typeof workspace === 'string' ? { name: workspace, mode: 'direct' } : workspace,
    volumes: volumes?.map(volumeMount),
  }
}

/** Encodes the options of a program. */
export function encodeProgram({ files, stdin, ...rest }: Program): Record<string, unknown> {
  const list = files && Object.entries(files).map(([path, content]) => ({ path, ...bytesOrText('content', content) }))
  return { ...encodeSpec(rest), files: list, ...bytesOrText('stdin', stdin) }
}

/** Encodes a command, or a script for the sandbox's shell. */
export function encodeCommand(command: string | string[], options: ExecOptions): Record<string, unknown> {
  const { stdin, ...rest } = options
  return { ...(typeof command === 'string' ? { shell: command } : { command }), ...encode(rest), ...bytesOrText('stdin', stdin) }
}

/** Encodes a request for copies. */
export function encodeFork({ egress: rules, bandwidth, volumes, ...rest }: ForkOptions): Record<string, unknown> {
  // The server replaces the rules and the bandwidth together, so it would remove all rules.
  if (bandwidth !== undefined && !rules) throw invalid('a fork replaces the bandwidth only with the rules', 'bandwidth', 'give egress, too')
  return { ...encode(rest), egress: rules && egress(rules, bandwidth), volumes: volumes?.map(volumeMount) }
}

function volumeMount(mount: string | VolumeMount): VolumeMount {
  if (typeof mount !== 'string') return mount
  const [name = '', path, access = 'rw', ...more] = mount.split(':')
  if (path === undefined || more.length > 0 || (access !== 'ro' && access !== 'rw')) {
    throw invalid(`"${mount}" is not name:path[:ro]`, 'volumes', 'write it as data:/data')
  }
  return access === 'ro' ? { name, path, read_only: true } : { name, path }
}

/** Encodes egress rules and the bandwidth. */
export function egress(rules: (string | EgressRule)[], bandwidth?: number | string): Record<string, unknown> {
  return { rules: rules.map((r) => (typeof r === 'string' ? { host: r } : r)), bandwidth }
}

/** Encodes text as it is, and bytes in base64 with another name. */
function bytesOrText(name: string, value: string | Uint8Array | undefined): Record<string, string> {
  if (value === undefined) return {}
  if (typeof value === 'string') return { [name]: value }
  return { [`${name}_b64`]: btoa(Array.from(value, (byte) => String.fromCharCode(byte)).join('')) }
}

/** Decodes a chunk of output. */
export function chunkText({ data, data_b64 }: wire.Chunk): string {
  return data ?? new TextDecoder().decode(Uint8Array.from(atob(data_b64 ?? ''), (c) => c.charCodeAt(0)))
}
