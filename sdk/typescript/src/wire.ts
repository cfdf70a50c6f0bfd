// Generated from docs/openapi.json by `make docs`. Do not edit.

export interface Alert {
  hint?: string;
  /** labels that distinguish alerts of one name: provider, tenant */
  labels?: Record<string, string>;
  name: string;
  resolved?: string;
  /** critical or warning */
  severity: string;
  since: string;
  /** pending until it has lasted long enough, then firing; resolved for an hour after its end */
  state: string;
  summary: string;
  threshold: number;
  /** the last measured value */
  value: number;
}

export interface Alerts {
  alerts: Alert[];
}

export interface Artifact {
  content_b64: string;
  mime_type: string;
  mode?: number;
  /** relative to /workspace/artifacts */
  path: string;
  size: number;
}

export interface Attempt {
  code: string;
  message: string;
  provider: string;
  took_ms: number;
}

export type AttestRequest = Record<string, never>;

export interface BuildFailure {
  message: string;
  /** base, the number of a step from 1, or finalize for the part after the last step */
  step: string;
}

export interface BuildRequest {
  /** 1 to 63 of a-z, 0-9 and - */
  name?: string;
  /** in addition to the few that every system needs */
  packages?: string[];
  /** the Debian release, for example bookworm */
  suite?: string;
}

export interface BuiltTemplate {
  created: string;
  id: string;
  last_used?: string;
  name: string;
  /** sorted by name */
  tags: TemplateTag[];
  updated: string;
  /** number of sandboxes that were created from it */
  uses: number;
}

export interface Capabilities {
  /** by area: isolation, memory, cpus, processes, open_files, disk, output, time, egress, secrets, workspace */
  enforces: Record<string, Enforcement>;
  /** the isolation between a sandbox and its host */
  isolation: string;
  provider: string;
  /** whether sandboxes can connect to other hosts, if egress rules allow it */
  uplinks: boolean;
}

export interface Ceilings {
  /** callers must name images by their digest */
  digests_only?: boolean;
  /** names, patterns with * and ?, or digests of the allowed images; default all */
  images?: string[];
  /** maximum of each limit */
  limits?: MostLimits;
  max_life_ms?: number;
  /** maximum time for which a sandbox stays paused after its last use, or after its last copy; then it ends; applies to later pauses */
  max_pause_ms?: number;
  max_timeout_ms?: number;
  max_ttl_ms?: number;
  /** code to reject, in addition to the server's screening */
  screening?: Screening;
}

export interface CeilingsRequest {
  /** callers must name images by their digest */
  digests_only?: boolean;
  /** names, patterns with * and ?, or digests of the allowed images; default all */
  images?: string[];
  /** maximum of each limit */
  limits?: MostLimitsRequest;
  max_life_ms?: number;
  /** maximum time for which a sandbox stays paused after its last use, or after its last copy; then it ends; applies to later pauses */
  max_pause_ms?: number;
  max_timeout_ms?: number;
  max_ttl_ms?: number;
  /** code to reject, in addition to the server's screening */
  screening?: Screening;
}

export interface Change {
  /** the file after the change, if it exists */
  entry?: Entry;
  /** the changes: create, rename (to another path), chmod, write, remove */
  kinds: string[];
  /** path relative to the directory */
  name: string;
}

export type ChangeEvent = Change & {
  event: "change";
};

export interface Chunk {
  data?: string;
  data_b64?: string;
  /** offset of this chunk in the output of a detached process */
  offset?: number;
}

export interface CodeAnswer {
  context_id: string;
  duration_ms: number;
  /** the exception that ended the code, if any */
  error: Exception | null;
  execution_count: number;
  /** the caller disconnected or interrupted it */
  interrupted: boolean;
  /** the interpreter ended, and its variables are lost */
  lost: boolean;
  /** the sandbox exceeded its memory limit and ended */
  oom_killed: boolean;
  /** time in the queue */
  queued_ms: number;
  /** displayed values and the value of the last expression, in order */
  results: Rich[];
  /** why the sandbox ended while the code ran: the reason of its exit */
  sandbox_ended?: string;
  started: string;
  stderr: string;
  stderr_b64?: string;
  stderr_bytes: number;
  stderr_cut?: Cut;
  /** the output; bytes that are not UTF-8 are replaced, and cut output is marked */
  stdout: string;
  /** the exact stored bytes, without the mark; present if they are not UTF-8 */
  stdout_b64?: string;
  /** number of bytes written, stored or not */
  stdout_bytes: number;
  /** present if stdout was cut */
  stdout_cut?: Cut;
  /** value of the last expression as text */
  text: string;
  timed_out: boolean;
  /** whether stdout or stderr was cut */
  truncated: boolean;
}

/** One event per line or message. The last one is result or error. */
export type CodeAnswerEvent = CodestartedEvent | StdoutEvent | StderrEvent | OutputEvent | ExceptionEvent | PingEvent | CodeAnswerResultEvent | ErrorEvent;

export type CodeAnswerResultEvent = CodeAnswer & {
  event: "result";
};

export interface CodeRequest {
  /** source code */
  code: string;
  /** the context's ID; default: the sandbox's default context of the language */
  context_id?: string;
  /** environment variables for this run only */
  env?: Record<string, string>;
  /** python (the default), javascript, typescript, bash, or a Jupyter kernel of the image; not together with context_id */
  language?: string;
  /** wall time from the start of the code, after which it is interrupted */
  timeout_ms?: number;
  /** whether to leave the execution count of a Python context as it is */
  uncounted?: boolean;
}

export interface CodeStarted {
  context_id: string;
  execution_count: number;
}

export type CodestartedEvent = CodeStarted & {
  event: "code_started";
};

export interface ComposeRequest {
  /** the new file */
  destination: string;
  /** the files to join, in order */
  source_paths: string[];
  /** user whose rights and home apply, and who owns the file: user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
}

export interface ConfigField {
  default?: unknown;
  description?: string;
  destination?: boolean;
  label: string;
  max?: number;
  min?: number;
  multiline?: boolean;
  name: string;
  options?: string[];
  placeholder?: string;
  readonly?: boolean;
  required?: boolean;
  secret?: boolean;
  type: "string" | "integer" | "number" | "boolean" | "array";
}

export interface Context {
  created: string;
  cwd: string;
  env?: Record<string, string>;
  /** number of runs since the interpreter started */
  execution_count: number;
  /** the interpreter: cpython, node, bash or jupyter */
  flavor: string;
  id: string;
  language: string;
  /** ID of the sandbox */
  sandbox: string;
  /** idle, busy, or dead: the interpreter ended, and the next run starts another */
  state: string;
  /** version of the interpreter */
  version: string;
}

export interface ContextRequest {
  /** working directory; default /workspace */
  cwd?: string;
  /** environment variables in addition to the sandbox's */
  env?: Record<string, string>;
  /** python (the default), javascript, typescript, bash, or a Jupyter kernel of the image */
  language?: string;
}

export interface Contexts {
  contexts: Context[];
}

export interface Copies {
  sandboxes: Sandbox[];
}

export interface Cut {
  head: number;
  tail: number;
}

export interface Deliveries {
  deliveries: Delivery[];
}

export interface Delivery {
  /** time of the last attempt */
  at: string;
  attempts: number;
  delivered: boolean;
  duration_ms: number;
  error?: string;
  /** ID of the event */
  event: string;
  /** the same for each attempt; the header E2b-Delivery-Id */
  id: string;
  sandbox: string;
  /** HTTP status of the last response; 0 if there was none */
  status: number;
  type: string;
}

export type Descriptor3Event = Chunk & {
  event: "descriptor3";
};

export interface Egress {
  /** bytes per second in each direction; default unlimited */
  bandwidth?: number;
  /** evaluated in order; the first matching rule decides, and everything else is denied */
  rules: EgressRule[];
}

export interface EgressRequest {
  /** bytes per second in each direction; default unlimited */
  bandwidth?: number | string;
  /** evaluated in order; the first matching rule decides, and everything else is denied */
  rules: EgressRule[];
}

export interface EgressChange {
  /** bytes per second in each direction; 0 is unlimited; if omitted, it stays unchanged */
  bandwidth?: number | string;
  /** all of them, in order; the first that matches decides, and what none matches is denied */
  rules: EgressRule[];
}

export interface EgressRule {
  /** a network (192.0.2.0/24) or an address */
  cidr?: string;
  /** deny matching connections instead of allowing them */
  deny?: boolean;
  /** a host name (api.example.com), or all names below one (*.example.com) */
  host?: string;
  /** with host: only HTTP requests with these methods (GET) */
  methods?: string[];
  /** with host: only HTTP requests for these paths; a path that ends in * is a prefix */
  paths?: string[];
  /** default all ports */
  ports?: number[];
}

export interface Enforcement {
  /** time of the verification; without it, the level is only the provider's claim */
  at?: string;
  /** the evidence */
  evidence?: string[];
  /** the gaps */
  gaps?: string[];
  /** how to close the gaps */
  help?: string;
  /** the mechanism */
  how?: string;
  /** boundary (enforced by a kernel or the proxy, whatever the sandbox does), gaps (enforced with the named gaps) or none */
  level: "none" | "gaps" | "boundary";
}

export interface Entries {
  entries: Entry[];
}

export interface Entry {
  /** a name, or a number if the image has no name for it */
  group: string;
  /** metadata from the upload of the file */
  metadata?: Record<string, string>;
  /** permission bits */
  mode: number;
  modified: string;
  /** the path's last part */
  name: string;
  /** a name, or a number if the image has no name for it */
  owner: string;
  /** absolute */
  path: string;
  /** in bytes */
  size: number;
  /** absolute target of a symbolic link */
  target?: string;
  /** the permission bits of a symbolic link's target */
  target_mode?: number;
  /** the type of a symbolic link's target; omitted if the target does not exist */
  target_type?: string;
  /** file, directory, symlink, or other (socket, pipe, device) */
  type: string;
}

export interface Error {
  /** stable code of the error: see docs/reference/errors.md */
  code: string;
  /** the invalid field of the request */
  field?: string;
  /** all invalid fields, if there are several */
  fields?: FieldError[];
  /** how to fix it */
  hint?: string;
  /** the kind of the error */
  kind: "not_initialized" | "invalid_config" | "connection_failed" | "creation_failed" | "timeout" | "out_of_memory" | "blocked_by_policy" | "rate_limited" | "provider_unavailable" | "invalid_argument" | "unauthenticated" | "permission_denied" | "not_found" | "already_exists" | "failed_precondition" | "unimplemented" | "canceled" | "internal";
  /** what went wrong */
  message: string;
}

export interface ErrorAnswer {
  error: Error;
}

export type ErrorEvent = ErrorAnswer & {
  event: "error";
};

export interface Exception {
  name: string;
  traceback: string;
  value: string;
}

export type ExceptionEvent = Exception & {
  event: "exception";
};

export interface ExecRequest {
  /** the program and its arguments, without a shell */
  command?: string[];
  /** working directory; default the sandbox's default_cwd, else /workspace */
  cwd?: string;
  /** environment variables that override the sandbox's */
  env?: Record<string, string>;
  /** a script for the image's shell */
  shell?: string;
  /** text for standard input */
  stdin?: string;
  /** bytes for standard input, in base64 */
  stdin_b64?: string;
  /** continue the process if the caller disconnects */
  survive?: boolean;
  /** wall time after which the whole process tree is killed */
  timeout_ms?: number;
  /** user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
}

export interface Execution {
  command?: string[];
  cwd?: string;
  /** false while the execution runs */
  done: boolean;
  duration_ms: number;
  env?: Record<string, string>;
  /** ID of the execution */
  exec: string;
  /** the program's exit code; 128+n if signal n ended it, 124 after a timeout, 137 if it ran out of memory */
  exit_code: number;
  oom_killed: boolean;
  /** ID of the sandbox */
  sandbox: string;
  /** why the sandbox ended while the program ran, and ended the program with it: the reason of its exit */
  sandbox_ended?: string;
  shell?: string;
  /** the signal that ended it, if any */
  signal: string;
  started: string;
  stderr: string;
  stderr_b64?: string;
  stderr_bytes: number;
  stderr_cut?: Cut;
  /** the output; bytes that are not UTF-8 are replaced, and cut output is marked */
  stdout: string;
  /** the exact stored bytes, without the mark; present if they are not UTF-8 */
  stdout_b64?: string;
  /** number of bytes written, stored or not */
  stdout_bytes: number;
  /** present if stdout was cut */
  stdout_cut?: Cut;
  survive?: boolean;
  timed_out: boolean;
  timeout_ms?: number;
  /** whether stdout or stderr was cut */
  truncated: boolean;
  user?: string;
}

export interface Executions {
  execs: Execution[];
}

export interface Exit {
  at: string;
  code: number;
  oom_killed: boolean;
  reason: string;
}

export interface ExtendRequest {
  /** time from now until the lease ends */
  ttl_ms?: number;
}

export interface FieldError {
  field: string;
  message: string;
}

export interface File {
  content?: string;
  content_b64?: string;
  /** permission bits; default 0644 */
  mode?: number | string;
  /** relative to /workspace */
  path: string;
}

export interface ForkRequest {
  /** number of copies; default 1 */
  count?: number;
  /** default working directory of commands; default: that of the original */
  default_cwd?: string;
  /** default user of commands; default: that of the original */
  default_user?: string;
  /** egress rules of each copy; default: those of the original */
  egress?: EgressRequest;
  /** environment variables in addition to those of the original; programs that are copied keep theirs */
  env?: Record<string, string>;
  /** labels of each copy; default: those of the original */
  labels?: Record<string, string>;
  /** limits of each copy, if the original is paused with files_only; default: those of the original */
  limits?: LimitsRequest;
  /** name of the copy, if there is one; default: a generated name */
  name?: string;
  /** each copy is paused at the end of its lease, instead of ended; default: as the original */
  pause_at_end?: boolean;
  /** with pause_at_end: it and pauses without use keep only the files */
  pause_files_only?: boolean;
  /** the copy is paused: it takes only disk space, and can be forked any number of times without being resumed */
  paused?: boolean;
  /** lease of each copy; default: that of the original */
  ttl_ms?: number;
  /** volumes to mount instead of those of the original, if it is paused with files_only; default: those of the original */
  volumes?: VolumeMount[];
}

export interface Grant {
  expires: string;
  /** the token, for use like an API key */
  grant: string;
  id: string;
  /** ID of the key; the token ends with it */
  key_id: string;
  role: "viewer" | "member" | "admin" | "operator";
  sandboxes?: string[];
  scopes?: string[];
  tenant: string;
}

export interface GrantRequest {
  /** default: the caller's */
  role?: "viewer" | "member" | "admin" | "operator";
  /** names of the sandboxes to which the grant is restricted */
  sandboxes?: string[];
  /** default: the caller's */
  scopes?: string[];
  /** default an hour, at most a day */
  ttl_ms?: number;
}

export interface Head {
  hash: string;
  /** Ed25519 public key; absent if the log is not signed */
  key?: string;
  /** number of the newest record; 0 if the log is empty */
  seq: number;
  signature?: string;
  tenant: string;
  time: string;
}

export interface Health {
  status: string;
}

export interface Image {
  /** the alias that the caller used */
  alias?: string;
  config?: ImageConfig;
  created?: string;
  digest: string;
  files: number;
  /** digest of the manifest in the registry */
  manifest?: string;
  /** names, including aliases */
  names: string[];
  /** notes about the image, such as ignored settings */
  notes?: string[];
  /** unpacked size in bytes; 0 for the image host */
  size: number;
  /** host, tarball, debian, registry, oci-layout or docker-archive */
  source: string;
}

export interface ImageConfig {
  /** uid:gid of the image's user, for its entrypoint */
  account?: string;
  /** default arguments of the entrypoint */
  command?: string[];
  /** runs if the sandbox is created with entrypoint */
  entrypoint?: string[];
  /** environment variables of every sandbox of the image; the caller's override them */
  env?: Record<string, string>;
  labels?: Record<string, string>;
  /** for example linux/amd64 */
  platform?: string;
  /** root or user, if the image has one; commands run as user by default */
  user?: string;
  /** default working directory of commands; / is ignored */
  working_dir?: string;
}

/** One event per line or message. The last one is result or error. */
export type ImageEvent = ProgressEvent | PingEvent | ImageResultEvent | ErrorEvent;

export type ImageResultEvent = Image & {
  event: "result";
};

export interface Images {
  images: Image[];
}

export interface Key {
  created?: string;
  expires?: string;
  id: string;
  kind?: string;
  /** accurate to a minute */
  last_used?: string;
  name: string;
  /** first characters of the key */
  prefix?: string;
  role: "viewer" | "member" | "admin" | "operator";
  scopes?: string[];
  tenant: string;
}

export interface KeyRequest {
  /** brig (the default), or e2b for E2B's clients */
  kind?: "brig" | "e2b";
  /** a name for the key, such as its owner or purpose */
  name: string;
  /** viewer, member, admin or operator; not above the caller's role */
  role: "viewer" | "member" | "admin" | "operator";
  /** prefixes of operation names, for example file.read or sandbox.; default: all operations of the role */
  scopes?: string[];
  /** default: the caller's tenant; other tenants are for operators */
  tenant?: string;
  /** lifetime of the key; default: until it is revoked */
  ttl_ms?: number;
}

export interface Keys {
  keys: Key[];
}

export type KillRequest = Record<string, never>;

export interface LifecycleEvent {
  at: string;
  /** the same in each response and delivery */
  id: string;
  /** labels of the sandbox */
  labels: Record<string, string>;
  name: string;
  /** ID of the sandbox that it is a copy of */
  origin?: string;
  /** why it ended, or why it was paused or resumed without a call */
  reason?: string;
  /** ID of the sandbox */
  sandbox: string;
  /** created, updated, paused, resumed, copied or ended */
  type: string;
}

export interface LifecycleEvents {
  events: LifecycleEvent[];
}

export interface Limits {
  /** number of processors, for example 0.5; from 0.05 to 64, default 1 */
  cpus?: number;
  /** writable bytes of the root file system; from 1MiB to 1024GiB, default 1GiB */
  disk?: number;
  /** bytes of memory, including files in /tmp and /dev/shm; from 32MiB to 64GiB, default 512MiB */
  memory?: number;
  /** open files per process; from 32 to 1.048576e+06, default 1024 */
  open_files?: number;
  /** stored bytes of each output stream of an execution; from 1KiB to 16MiB, default 1MiB */
  output?: number;
  /** processes and threads at a time, per user; from 8 to 32768, default 256 */
  processes?: number;
}

export interface LimitsRequest {
  /** number of processors, for example 0.5; from 0.05 to 64, default 1 */
  cpus?: number;
  /** writable bytes of the root file system; from 1MiB to 1024GiB, default 1GiB */
  disk?: number | string;
  /** bytes of memory, including files in /tmp and /dev/shm; from 32MiB to 64GiB, default 512MiB */
  memory?: number | string;
  /** open files per process; from 32 to 1.048576e+06, default 1024 */
  open_files?: number;
  /** stored bytes of each output stream of an execution; from 1KiB to 16MiB, default 1MiB */
  output?: number | string;
  /** processes and threads at a time, per user; from 8 to 32768, default 256 */
  processes?: number;
}

export interface Line {
  actor: string;
  detail?: Record<string, string>;
  /** SHA-256 of the record's other fields */
  hash: string;
  /** kind of the error, if any */
  kind?: string;
  op: string;
  /** intent, outcome, refused or observed */
  phase: string;
  /** hash of the previous record */
  prev: string;
  /** ID of the sandbox */
  sandbox?: string;
  /** number of the record in the tenant's log, from 1 */
  seq: number;
  tenant: string;
  time: string;
}

export type LineEvent = TemplateBuildLine & {
  event: "line";
};

export type LogEnd = Record<string, unknown>;

/** One event per line or message. The last one is result or error. */
export type LogEndEvent = LogEvent | PingEvent | LogEndResultEvent | ErrorEvent;

export type LogEndResultEvent = LogEnd & {
  event: "result";
};

export type LogEvent = Chunk & {
  event: "log";
};

export interface MakeDirRequest {
  /** absolute, or relative to where the sandbox's commands start (default_cwd, else /workspace); ~ is the user's home */
  path: string;
  /** user whose rights apply, and who owns new files: user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
}

export interface MostLimits {
  cpus?: number;
  /** bytes */
  disk?: number;
  /** bytes */
  memory?: number;
  open_files?: number;
  /** bytes */
  output?: number;
  processes?: number;
}

export interface MostLimitsRequest {
  cpus?: number;
  /** bytes */
  disk?: number | string;
  /** bytes */
  memory?: number | string;
  open_files?: number;
  /** bytes */
  output?: number | string;
  processes?: number;
}

export interface MoveRequest {
  /** absolute, or relative to where the sandbox's commands start (default_cwd, else /workspace); ~ is the user's home */
  from: string;
  /** the new path, including the file's name */
  to: string;
  /** user whose rights and home apply, and who owns new parent directories: user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
}

export interface NewKey {
  created?: string;
  expires?: string;
  id: string;
  /** the API key; the server never returns it again */
  key: string;
  kind?: string;
  /** accurate to a minute */
  last_used?: string;
  name: string;
  /** first characters of the key */
  prefix?: string;
  role: "viewer" | "member" | "admin" | "operator";
  scopes?: string[];
  tenant: string;
}

export interface NewSession {
  created: string;
  /** value for the header X-Brig-CSRF, required for all methods except GET, and to upgrade a connection; returned only once */
  csrf: string;
  email?: string;
  /** latest end of the session */
  expires: string;
  id: string;
  issuer?: string;
  /** ID of the key; the token ends with it */
  key_id?: string;
  /** accurate to a minute */
  last_used: string;
  /** name of the key or person */
  name: string;
  /** role at the start of the session */
  role: "viewer" | "member" | "admin" | "operator";
  subject?: string;
  tenant: string;
}

export type OutputEvent = Rich & {
  event: "output";
};

export interface Page {
  /** head of the log at the time of the request */
  head: Head;
  lines: Line[];
  /** value of after for the next page; 0 on the last page */
  next: number;
}

export interface Pause {
  at: string;
  /** the disk space that its memory and files take */
  bytes: number;
  /** only its files are kept, and a resume boots it again */
  files_only?: boolean;
  /** the rest of its lease, which continues when it is resumed */
  left_ms: number;
}

export interface PauseRequest {
  /** keep only the files, and not the memory: no program prevents that; contexts and processes end, and a resume boots the sandbox again with its files, main program and template's start command, also on another build of the server */
  files_only?: boolean;
}

export interface PingEvent {
  event: "ping";
}

export interface Placement {
  /** try no other provider */
  only?: boolean;
  /** cheapest or region; replaces the order of the tenant's routing */
  prefer?: "cheapest" | "region";
  /** ID of the provider to try first */
  provider?: string;
  /** regions by preference */
  regions?: string[];
}

export interface Pool {
  shelves: Shelf[];
}

export interface Process {
  /** the program and its arguments, without a shell */
  command?: string[];
  /** working directory; default the sandbox's default_cwd, else /workspace */
  cwd?: string;
  /** environment variables that override the sandbox's */
  env?: Record<string, string>;
  /** empty standard input; otherwise the standard input stays open */
  no_input?: boolean;
  /** process ID inside the sandbox */
  pid: number;
  /** how the process ended, without its output */
  result?: Result;
  running: boolean;
  /** a script for the image's shell */
  shell?: string;
  started: string;
  /** a name that the caller chose */
  tag?: string;
  /** terminal size; without it, the process has pipes instead of a terminal */
  terminal?: Terminal;
  /** wall time after which the whole process tree is killed; default unlimited */
  timeout_ms?: number;
  /** user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
  /** number of output bytes so far */
  written: number;
}

export interface ProcessInput {
  /** text */
  data?: string;
  /** bytes, in base64 */
  data_b64?: string;
}

export interface ProcessRequest {
  /** the program and its arguments, without a shell */
  command?: string[];
  /** working directory; default the sandbox's default_cwd, else /workspace */
  cwd?: string;
  /** environment variables that override the sandbox's */
  env?: Record<string, string>;
  /** empty standard input; otherwise the standard input stays open */
  no_input?: boolean;
  /** a script for the image's shell */
  shell?: string;
  /** a name that the caller chose */
  tag?: string;
  /** terminal size; without it, the process has pipes instead of a terminal */
  terminal?: Terminal;
  /** wall time after which the whole process tree is killed; default unlimited */
  timeout_ms?: number;
  /** user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
}

export interface Processes {
  processes: Process[];
}

export interface ProgramError {
  /** code of a verdict (SB005 for a timeout); empty for an exception of the program */
  code?: string;
  hint?: string;
  message: string;
  /** kind of the verdict, or type of the exception */
  name: string;
  traceback?: string;
}

export interface Progress {
  done: number;
  step: string;
  /** 0 if unknown */
  total: number;
}

export type ProgressEvent = Progress & {
  event: "progress";
};

export interface Provider {
  active: boolean;
  capabilities?: Capabilities;
  /** settings; secrets show only their last four characters */
  config?: Record<string, unknown>;
  configured: boolean;
  description: string;
  /** kind of the provider */
  driver: string;
  /** fields of the configuration, in order */
  fields: ConfigField[];
  /** whether it is the server's own machine, which always exists */
  home?: boolean;
  id: string;
  languages: string[];
  /** revision; changes with every change of config and terms */
  rev?: number;
  /** it only runs programs and has no persistent sandboxes */
  runs_only?: boolean;
  tags: string[];
  terms: Terms;
  title: string;
  /** whether it answered the last check */
  up: boolean;
  /** current number of sandboxes and programs */
  users: number;
  /** why it is not up */
  why?: string;
}

export interface ProviderRequest {
  /** make it the active provider */
  activate?: boolean;
  /** settings, as described by fields; if omitted, they stay unchanged, and so does a masked secret */
  config?: Record<string, unknown>;
  /** reject the change (409) if the provider has another revision */
  rev?: number;
  /** omitted fields keep their values */
  terms?: TermsChange;
  /** run a test program first, and change nothing if it fails */
  test?: boolean;
}

export interface ProviderTest {
  code?: string;
  exit_code: number;
  hint?: string;
  latency_ms: number;
  message: string;
  stderr: string;
  stdout: string;
  success: boolean;
}

export interface Providers {
  providers: Provider[];
}

export interface PullRequest {
  /** allow plain HTTP */
  insecure?: boolean;
  /** password, or a token without a username; not stored */
  password?: string;
  /** for example linux/arm64; default: the server's platform */
  platform?: string;
  /** for example python:3.11-slim or registry.example/owner/name@sha256:… */
  ref: string;
  /** for the registry that ref names */
  username?: string;
}

export interface Quota {
  /** reserved processor time: the processor limits of sandboxes multiplied by their lifetime */
  cpu_ms_per_day?: number;
  egress_bytes_per_day?: number;
  execution_ms_per_day?: number;
  /** executions at a time: runs, commands, code and processes */
  executions?: number;
  executions_per_day?: number;
  /** reserved memory: the memory limits of sandboxes multiplied by their lifetime */
  gib_seconds_per_day?: number;
  /** total size of ended executions and runs, outputs and artifacts included; the server deletes the oldest and rejects nothing; default the server's limit */
  outputs?: number;
  /** paused sandboxes and paused copies at a time; default 1000 */
  paused?: number;
  /** API calls a second of the whole tenant */
  rate?: number;
  /** API calls a second per key */
  rate_per_key?: number;
  /** sandboxes at a time, including one-shot runs */
  sandboxes?: number;
  /** sum of the disk limits of running sandboxes */
  storage?: number;
  /** sum of the sizes of volumes; default 100 GiB */
  volumes?: number;
  /** size of all versions of workspaces; shared content counts once */
  workspaces?: number;
}

export interface QuotaRequest {
  /** reserved processor time: the processor limits of sandboxes multiplied by their lifetime */
  cpu_ms_per_day?: number;
  egress_bytes_per_day?: number | string;
  execution_ms_per_day?: number;
  /** executions at a time: runs, commands, code and processes */
  executions?: number;
  executions_per_day?: number;
  /** reserved memory: the memory limits of sandboxes multiplied by their lifetime */
  gib_seconds_per_day?: number;
  /** total size of ended executions and runs, outputs and artifacts included; the server deletes the oldest and rejects nothing; default the server's limit */
  outputs?: number | string;
  /** paused sandboxes and paused copies at a time; default 1000 */
  paused?: number;
  /** API calls a second of the whole tenant */
  rate?: number;
  /** API calls a second per key */
  rate_per_key?: number;
  /** sandboxes at a time, including one-shot runs */
  sandboxes?: number;
  /** sum of the disk limits of running sandboxes */
  storage?: number | string;
  /** sum of the sizes of volumes; default 100 GiB */
  volumes?: number | string;
  /** size of all versions of workspaces; shared content counts once */
  workspaces?: number | string;
}

export interface RegistryLogin {
  /** password, or a token without a username */
  password?: string;
  username?: string;
}

export interface ReplayRequest {
  /** events from this time on, at most as old as the webhook */
  since: string;
}

export interface Resealed {
  secrets: number;
}

export interface RestoreRequest {
  /** version to restore */
  version: number;
}

export interface Result {
  /** false while the execution runs */
  done: boolean;
  duration_ms: number;
  /** ID of the execution */
  exec: string;
  /** the program's exit code; 128+n if signal n ended it, 124 after a timeout, 137 if it ran out of memory */
  exit_code: number;
  oom_killed: boolean;
  /** why the sandbox ended while the program ran, and ended the program with it: the reason of its exit */
  sandbox_ended?: string;
  /** the signal that ended it, if any */
  signal: string;
  started: string;
  stderr: string;
  stderr_b64?: string;
  stderr_bytes: number;
  stderr_cut?: Cut;
  /** the output; bytes that are not UTF-8 are replaced, and cut output is marked */
  stdout: string;
  /** the exact stored bytes, without the mark; present if they are not UTF-8 */
  stdout_b64?: string;
  /** number of bytes written, stored or not */
  stdout_bytes: number;
  /** present if stdout was cut */
  stdout_cut?: Cut;
  timed_out: boolean;
  /** whether stdout or stderr was cut */
  truncated: boolean;
}

/** One event per line or message. The last one is result or error. */
export type ResultEvent = StartedEvent | StdoutEvent | StderrEvent | Descriptor3Event | PingEvent | ResultResultEvent | ErrorEvent;

export type ResultResultEvent = Result & {
  event: "result";
};

export type ResumeRequest = Record<string, never>;

export interface Rich {
  /** the value by MIME type: a string, base64 for images and PDF, JSON for JSON types */
  data: Record<string, unknown>;
  /** the ID of a display that the code may update */
  display_id?: string;
  /** whether it is the value of the last expression */
  main: boolean;
  /** describes the representations, for example the size of an image */
  metadata?: Record<string, unknown>;
  /** whether it replaces the values with the same display_id. Results have the last update already; there it is true if an earlier run displayed the value */
  update?: boolean;
}

export interface Route {
  /** failed attempts */
  attempts?: Attempt[];
  provider: string;
  /** for example active, asked for, cheapest, or fallback: e2b is unavailable */
  reason: string;
}

export interface Routing {
  /** number of providers to try, 1 to 3; default 3 */
  attempts?: number;
  /** providers in the order of preference; empty: only the active provider */
  order?: string[];
  /** provider to try first while the first choice is full */
  overflow?: string[];
  /** cheapest or region; replaces the order */
  prefer?: "cheapest" | "region";
  /** regions for prefer, by preference */
  regions?: string[];
  /** revision; changes with every change */
  rev?: number;
  /** chooses the first provider at random, by weight */
  split?: Record<string, number>;
}

export interface RoutingChange {
  /** number of providers to try, 1 to 3; 0 is the default, 3 */
  attempts?: number;
  /** providers in the order of preference; empty: only the active provider */
  order?: string[];
  /** provider to try first while the first choice is full */
  overflow?: string[];
  /** cheapest or region; replaces the order; empty: use the order */
  prefer?: string;
  /** regions for prefer, by preference */
  regions?: string[];
  /** reject the change (409) if the routing has another revision */
  rev?: number;
  /** chooses the first provider at random, by weight */
  split?: Record<string, number>;
}

export interface RunAnswer {
  /** files that the program wrote directly in artifacts/, with the extension csv, html, jpeg, jpg, json, pdf, png or svg */
  artifacts: Artifact[];
  /** artifacts that were skipped because they were too many or too large */
  artifacts_skipped?: string[];
  /** false while the execution runs */
  done: boolean;
  duration_ms: number;
  /** the program's error, if any */
  error: ProgramError | null;
  /** ID of the execution */
  exec: string;
  /** the program's exit code; 128+n if signal n ended it, 124 after a timeout, 137 if it ran out of memory */
  exit_code: number;
  /** whether main returned a value; distinguishes null from no value */
  has_result: boolean;
  /** ID of the sandbox */
  id?: string;
  /** the image that was used, if the caller named an alias */
  image?: string;
  oom_killed: boolean;
  /** hit if a pooled sandbox was ready, otherwise miss */
  pool?: string;
  /** return value of main, or null */
  result: unknown;
  /** the provider that ran it, and why */
  route?: Route;
  /** name of the removed sandbox; GET /v1/runs/{name} returns this result again */
  sandbox: string;
  /** why the sandbox ended while the program ran, and ended the program with it: the reason of its exit */
  sandbox_ended?: string;
  /** the signal that ended it, if any */
  signal: string;
  started: string;
  stderr: string;
  stderr_b64?: string;
  stderr_bytes: number;
  stderr_cut?: Cut;
  /** the output; bytes that are not UTF-8 are replaced, and cut output is marked */
  stdout: string;
  /** the exact stored bytes, without the mark; present if they are not UTF-8 */
  stdout_b64?: string;
  /** number of bytes written, stored or not */
  stdout_bytes: number;
  /** present if stdout was cut */
  stdout_cut?: Cut;
  /** state for the next step */
  step?: StepAnswer;
  timed_out: boolean;
  /** whether stdout or stderr was cut */
  truncated: boolean;
  /** result of saving a workspace of the mode direct */
  workspace?: WorkspaceCommit;
}

/** One event per line or message. The last one is result or error. */
export type RunAnswerEvent = StartedEvent | StdoutEvent | StderrEvent | Descriptor3Event | PingEvent | RunAnswerResultEvent | ErrorEvent;

export type RunAnswerResultEvent = RunAnswer & {
  event: "result";
};

export interface RunRequest {
  /** arguments of the code's function main, whose return value is the result */
  arguments?: Record<string, unknown>;
  /** source code in language */
  code?: string;
  /** instead of code: a program and its arguments, without a shell */
  command?: string[];
  /** egress rules; default: no network access */
  egress?: EgressRequest;
  env?: Record<string, string>;
  /** files to write below /workspace before the program starts */
  files?: File[] | Record<string, string>;
  /** time after SIGTERM at the timeout until SIGKILL; together with timeout_ms at most the maximum timeout; default 0 */
  grace_ms?: number;
  /** name or digest of an image; default host */
  image?: string;
  labels?: Record<string, string>;
  /** python, javascript, typescript or bash */
  language?: "python" | "python3" | "py" | "javascript" | "js" | "node" | "nodejs" | "typescript" | "ts" | "bash" | "sh" | "shell";
  limits?: LimitsRequest;
  /** name of the sandbox; default: a generated name */
  name?: string;
  /** selects the provider; default: the tenant's routing */
  placement?: Placement;
  /** minimum enforcement by area, for example {"memory": "boundary"}; otherwise the run is rejected */
  require?: Record<string, string>;
  /** secrets for the program */
  secrets?: SecretUse[];
  /** text for standard input */
  stdin?: string;
  /** bytes for standard input, in base64 */
  stdin_b64?: string;
  /** run the Python code as one cell of a notebook in which each cell has its own sandbox */
  step?: Step;
  /** wall time after which the whole process tree is killed */
  timeout_ms?: number;
  /** user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
  /** volumes to mount */
  volumes?: VolumeMount[];
  /** workspace at /workspace */
  workspace?: WorkspaceUse;
}

export interface RunSummary {
  /** number of artifacts */
  artifacts: number;
  duration_ms: number;
  /** the program's error, if any, without its traceback */
  error?: ProgramError;
  exit_code: number;
  /** ID of the sandbox */
  id?: string;
  /** the image that was used, if the caller named an alias */
  image?: string;
  /** hit if a pooled sandbox was ready, otherwise miss */
  pool?: string;
  /** the provider that ran it */
  provider?: string;
  /** name of the removed sandbox; GET /v1/runs/{name} returns the whole result */
  sandbox: string;
  /** signal that ended the program */
  signal?: string;
  started: string;
  /** how the program ended */
  status: "success" | "error" | "timeout" | "out_of_memory";
  /** number of bytes that the program wrote */
  stderr_bytes: number;
  /** number of bytes that the program wrote */
  stdout_bytes: number;
}

export interface Runs {
  /** cursor of the next page; empty on the last page */
  next_cursor: string;
  runs: RunSummary[];
}

export interface Sandbox {
  /** main program and its arguments, without a shell; without one, the sandbox waits for commands */
  command?: string[];
  /** environment variables of the main program, which override env */
  command_env?: Record<string, string>;
  created: string;
  /** working directory; default /workspace */
  cwd?: string;
  /** default working directory of commands; default: the template's, the image's, or /workspace */
  default_cwd?: string;
  /** default user of commands, as for user; default: the template's, or user */
  default_user?: string;
  /** digest of the image at the creation */
  digest: string;
  /** egress rules; default: no network access */
  egress?: Egress;
  ended?: string;
  /** verified enforcement by area, from a sandbox of this image; attest verifies this very sandbox */
  enforcement?: Record<string, Enforcement>;
  /** run the image's entrypoint as the main program, with command or the image's own command as its arguments */
  entrypoint?: boolean;
  /** environment variables of all commands */
  env?: Record<string, string>;
  /** how the sandbox ended */
  exit?: Exit;
  /** end of the lease */
  expires?: string;
  /** use does not renew the lease */
  fixed_lease?: boolean;
  /** time without use after which the sandbox is frozen until its next use; default: never */
  freeze_after_ms?: number;
  id: string;
  /** name or digest of an image; default host */
  image?: string;
  /** labels, for filters and usage */
  labels?: Record<string, string>;
  limits?: Limits;
  /** 1 to 63 characters of a-z, 0-9 and -, unique among the tenant's sandboxes; default: a generated name */
  name: string;
  /** notes, for example on limits that this machine enforces in another way */
  notes?: string[];
  /** ID of the sandbox that this one was forked from */
  origin?: string;
  /** the sandbox can be paused while processes run in it, and not only contexts; their messages pass through one more program */
  pausable?: boolean;
  /** of a paused sandbox; expires is then when it ends unless it is resumed */
  pause?: Pause;
  /** time without use after which the sandbox is paused until its next use, at least 1000 and less than ttl_ms; default: never */
  pause_after_ms?: number;
  /** the sandbox is paused at the end of its lease, instead of ended */
  pause_at_end?: boolean;
  /** pause_at_end and pause_after_ms keep only the files, like files_only of a pause; needs one of them */
  pause_files_only?: boolean;
  /** selects the provider; default: the tenant's routing */
  placement?: Placement;
  /** hit if a pooled sandbox was ready, otherwise miss */
  pool?: string;
  provider: string;
  /** minimum enforcement by area, for example {"memory": "boundary"}; otherwise the creation is rejected */
  require?: Record<string, string>;
  /** the provider and the reason for it */
  route?: Route;
  /** {tenant}:{name}:{id}; works wherever a name does */
  scoped_id: string;
  /** secrets for the sandbox's commands */
  secrets?: SecretUse[];
  /** main program as a script for the image's shell */
  shell?: string;
  state: "creating" | "running" | "paused" | "stopping" | "stopped";
  /** name of a template, instead of image; one that the tenant has built can have a tag, as web:v1 */
  template?: string;
  tenant: string;
  /** wall time limit of the main program */
  timeout_ms?: number;
  /** time without use after which the sandbox ends */
  ttl_ms?: number;
  /** user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
  /** volumes to mount */
  volumes?: VolumeMount[];
  /** workspace at /workspace */
  workspace?: WorkspaceUse;
}

export interface SandboxUsage {
  at: string;
  /** the part of memory that the host can reclaim */
  cache: number;
  /** processor time since the sandbox started; the difference of two responses divided by their distance is the load */
  cpu_ms: number;
  /** bytes of disk space of the files that the sandbox wrote; missing if the provider does not measure it */
  disk?: number;
  /** bytes, as the host counts them */
  memory: number;
  /** bytes received, as sent */
  received: number;
  /** bytes sent through the network since its rules were attached, or since the server started; 0 without egress rules */
  sent: number;
}

export interface Sandboxes {
  /** cursor of the next page; empty on the last page */
  next_cursor: string;
  sandboxes: Sandbox[];
}

export interface ScreenRules {
  allow?: string[];
  /** attributes that code may not use */
  attributes?: string[];
  /** functions that code may not use: eval, os.system */
  calls?: string[];
  /** permit IPython commands */
  commands?: boolean;
  /** modules that code may not import */
  imports?: string[];
  /** permit only imports in allow, and reject code that cannot be parsed */
  only?: boolean;
}

export interface Screening {
  /** rules for JavaScript, and for compiled TypeScript */
  javascript?: ScreenRules;
  /** permit languages without rules */
  others?: boolean;
  /** rules for Python; without rules, Python is rejected unless others is set */
  python?: ScreenRules;
}

export interface Secret {
  allow?: string[];
  created: string;
  exclusive: boolean;
  hosts: string[];
  name: string;
  places: string[];
  plain?: boolean;
  updated: string;
  /** number of changes */
  version: number;
}

export interface SecretRequest {
  /** exceptions of exclusive: header fields (X-Tenant), query parameters with a question mark (?region), and users of basic credentials whose password is the placeholder (user:me@example.com); * at the end matches any rest */
  allow?: string[];
  /** reject requests to these hosts with header fields or query parameters that can carry other credentials */
  exclusive?: boolean;
  /** hosts to which the proxy sends the secret (api.example.com, *.example.com), which then never enters a sandbox; without hosts, sandboxes receive the value */
  hosts?: string[];
  /** parts of a request that may contain it: header (the default), query, body */
  places?: ("header" | "query" | "body")[];
  /** allow plain HTTP to these hosts; otherwise such requests are rejected */
  plain?: boolean;
  /** required to remove all hosts of a secret (hosts is []), because sandboxes then see its value */
  reveal?: boolean;
  /** the value, which is never returned; a new secret needs value or value_b64, and so does a change that lets the value go further: other hosts or none, further places or names in allow, plain, exclusive off */
  value?: string;
  /** the value, if it is not text */
  value_b64?: string;
}

export interface SecretUse {
  /** environment variable; default: the name in capitals, with _ instead of - */
  env?: string;
  /** the secret's name */
  name: string;
}

export interface Secrets {
  secrets: Secret[];
}

export interface Session {
  created: string;
  email?: string;
  /** latest end of the session */
  expires: string;
  id: string;
  issuer?: string;
  /** ID of the key; the token ends with it */
  key_id?: string;
  /** accurate to a minute */
  last_used: string;
  /** name of the key or person */
  name: string;
  /** role at the start of the session */
  role: "viewer" | "member" | "admin" | "operator";
  subject?: string;
  tenant: string;
}

export interface Sessions {
  sessions: Session[];
}

export interface Shelf {
  failed: number;
  hits: number;
  /** digest */
  image: string;
  /** language of the ready interpreter; empty for none */
  language: string;
  limits: Limits;
  making: number;
  misses: number;
  /** provider of the pooled sandboxes */
  provider?: string;
  ready: number;
  /** median time to create a pooled sandbox */
  refill_ms: number;
  /** target number of ready sandboxes */
  target: number;
}

export interface SignalRequest {
  /** for example SIGTERM; SIGKILL also ends everything that the process started */
  signal: string;
}

export interface Spec {
  /** main program and its arguments, without a shell; without one, the sandbox waits for commands */
  command?: string[];
  /** environment variables of the main program, which override env */
  command_env?: Record<string, string>;
  /** working directory; default /workspace */
  cwd?: string;
  /** default working directory of commands; default: the template's, the image's, or /workspace */
  default_cwd?: string;
  /** default user of commands, as for user; default: the template's, or user */
  default_user?: string;
  /** egress rules; default: no network access */
  egress?: EgressRequest;
  /** run the image's entrypoint as the main program, with command or the image's own command as its arguments */
  entrypoint?: boolean;
  /** environment variables of all commands */
  env?: Record<string, string>;
  /** use does not renew the lease */
  fixed_lease?: boolean;
  /** time without use after which the sandbox is frozen until its next use; default: never */
  freeze_after_ms?: number;
  /** name or digest of an image; default host */
  image?: string;
  /** labels, for filters and usage */
  labels?: Record<string, string>;
  limits?: LimitsRequest;
  /** 1 to 63 characters of a-z, 0-9 and -, unique among the tenant's sandboxes; default: a generated name */
  name?: string;
  /** the sandbox can be paused while processes run in it, and not only contexts; their messages pass through one more program */
  pausable?: boolean;
  /** time without use after which the sandbox is paused until its next use, at least 1000 and less than ttl_ms; default: never */
  pause_after_ms?: number;
  /** the sandbox is paused at the end of its lease, instead of ended */
  pause_at_end?: boolean;
  /** pause_at_end and pause_after_ms keep only the files, like files_only of a pause; needs one of them */
  pause_files_only?: boolean;
  /** selects the provider; default: the tenant's routing */
  placement?: Placement;
  /** minimum enforcement by area, for example {"memory": "boundary"}; otherwise the creation is rejected */
  require?: Record<string, string>;
  /** secrets for the sandbox's commands */
  secrets?: SecretUse[];
  /** main program as a script for the image's shell */
  shell?: string;
  /** name of a template, instead of image; one that the tenant has built can have a tag, as web:v1 */
  template?: string;
  /** wall time limit of the main program */
  timeout_ms?: number;
  /** time without use after which the sandbox ends */
  ttl_ms?: number;
  /** user (the default), root, or the IDs of another user and its group, such as 1001:1001 */
  user?: string;
  /** volumes to mount */
  volumes?: VolumeMount[];
  /** workspace at /workspace */
  workspace?: WorkspaceUse;
}

export interface Started {
  exec: string;
}

export type StartedEvent = Started & {
  event: "started";
};

export type StderrEvent = Chunk & {
  event: "stderr";
};

export type StdoutEvent = Chunk & {
  event: "stdout";
};

export interface Step {
  /** number of earlier steps */
  count?: number;
  /** step.packages of the previous result: Python packages to install */
  packages?: string[];
  /** step.state of the previous result; omitted for the first step */
  state?: Record<string, unknown>;
}

export interface StepAnswer {
  /** displayed values, and the value of the last expression */
  outputs: Rich[];
  /** for the next step: Python packages that were installed with %pip or !pip */
  packages?: string[];
  /** for the next step; missing if the interpreter ended early */
  state?: Record<string, unknown>;
}

export interface StopRequest {
  /** time until the programs are killed */
  grace_ms?: number;
}

export interface TagRequest {
  /** name or digest of the image */
  image: string;
  /** the alias: a name, or a reference with a tag */
  name: string;
}

export interface TagTemplateRequest {
  /** tag that refers to the build; default: default */
  from?: string;
  /** 1 to 128 of a-z, A-Z, 0-9, -, _ and . */
  tag: string;
}

export interface Template {
  /** sandboxes are copies of one that has run start and ready */
  boot_once?: boolean;
  /** set if the caller's tenant has built the template, which then has no image of its own */
  built?: BuiltTemplate;
  /** default of commands */
  cwd?: string;
  /** run the image's entrypoint and command as start */
  entrypoint?: boolean;
  /** environment variables, which the caller's override */
  env?: Record<string, string>;
  image: string;
  /** Python modules that the interpreter of the first context has imported */
  imports?: string[];
  /** default limits of sandboxes */
  limits?: Limits;
  name: string;
  /** Debian packages from which the image can be built */
  packages?: string[];
  /** runs until it succeeds; then the sandbox is ready */
  ready?: TemplateCommand;
  ready_interval_ms?: number;
  ready_timeout_ms?: number;
  /** image to use until image exists */
  stand_in?: string;
  /** runs when a sandbox starts */
  start?: TemplateCommand;
  ttl_ms?: number;
  /** default of commands */
  user?: string;
}

export interface TemplateBuild {
  /** name of the caller who requested the build */
  actor: string;
  created: string;
  /** default working directory of the sandboxes' commands */
  cwd?: string;
  /** variables of the sandboxes' commands */
  env?: Record<string, string>;
  /** why the build failed */
  failure?: BuildFailure;
  /** ID of the paused sandbox with the files; another one than sandbox if there is a start command */
  files_sandbox?: string;
  finished?: string;
  id: string;
  /** limits of the template's sandboxes */
  limits?: Limits;
  /** ready command */
  ready?: string;
  /** ID of the paused sandbox that the template's sandboxes are copies of */
  sandbox?: string;
  /** start command */
  start?: string;
  started?: string;
  status: "waiting" | "building" | "ready" | "error";
  /** tags that the build gets when it is ready */
  tags: string[];
  /** ID of the template */
  template_id: string;
  /** default user of the sandboxes' commands */
  user?: string;
}

export interface TemplateBuildLine {
  /** warn for standard error */
  level: "debug" | "info" | "warn" | "error";
  /** base, the number of a step from 1, or finalize */
  step: string;
  text: string;
  time: string;
}

export interface TemplateBuildLog {
  build: TemplateBuild;
  /** empty in the result of a stream, whose events have the lines */
  lines: TemplateBuildLine[];
  /** offset of the next line */
  next_offset: number;
}

/** One event per line or message. The last one is result or error. */
export type TemplateBuildLogEvent = LineEvent | PingEvent | TemplateBuildLogResultEvent | ErrorEvent;

export type TemplateBuildLogResultEvent = TemplateBuildLog & {
  event: "result";
};

export interface TemplateBuildRequest {
  /** image that the build begins with */
  image?: string;
  /** limits of the template's sandboxes; default: those of the server */
  limits?: TemplateLimits;
  /** run all steps, also those that an earlier build has run */
  no_cache?: boolean;
  /** shell command that runs repeatedly until it exits with 0; then the template is ready; default with start: sleep 20 */
  ready?: string;
  /** login for the registry of image; not stored */
  registry?: RegistryLogin;
  /** shell command that runs in every sandbox of the template */
  start?: string;
  /** steps, in order */
  steps?: TemplateBuildStep[];
  /** tags that refer to the build when it is ready; default: the tag in the path, or default */
  tags?: string[];
  /** template that the build begins with, instead of image */
  template?: string;
}

export interface TemplateBuildStep {
  /** shell command of a run */
  command?: string;
  /** working directory of the following steps and of the sandboxes' commands, which is created */
  cwd?: string;
  /** path in the sandbox; a relative one is below the working directory */
  destination?: string;
  /** digest of the uploaded archive of a copy */
  digest?: string;
  /** variables of the following steps and of the sandboxes; values can refer to others as $NAME */
  env?: Record<string, string>;
  /** mode of the copied files in octal digits; default: as in the archive */
  mode?: string;
  /** run this step and those after it, also if an earlier build has run them */
  no_cache?: boolean;
  /** owner of the copied files, such as root or user:user; default: the user of the steps before */
  owner?: string;
  /** path in the archive: a file, or a directory, whose content is copied */
  source?: string;
  /** run (command, user), copy (digest, source, destination, owner, mode), env (env), workdir (cwd) or user (user) */
  type: "run" | "copy" | "env" | "workdir" | "user";
  /** user of the following steps and of the sandboxes' commands; of a run: only for its command */
  user?: string;
}

export interface TemplateCommand {
  command?: string[];
  cwd?: string;
  env?: Record<string, string>;
  shell?: string;
  user?: string;
}

export interface TemplateDetails {
  /** newest first */
  builds: TemplateBuild[];
  created: string;
  id: string;
  last_used?: string;
  name: string;
  /** sorted by name */
  tags: TemplateTag[];
  updated: string;
  /** number of sandboxes that were created from it */
  uses: number;
}

export interface TemplateFiles {
  present: boolean;
}

export interface TemplateLimits {
  /** number of processors, for example 0.5 */
  cpus?: number;
  /** bytes of memory */
  memory?: number | string;
}

export interface TemplateTag {
  assigned: string;
  /** ID of the build that it refers to */
  build: string;
  tag: string;
}

export interface Templates {
  templates: Template[];
}

export interface Tenant {
  budget?: number;
  ceilings: Ceilings;
  created?: string;
  name: string;
  quota: Quota;
  /** revision; changes with every change */
  rev?: number;
}

export interface TenantChange {
  budget?: number;
  ceilings?: CeilingsRequest;
  quota?: QuotaRequest;
  /** reject the change (409) if the tenant has another revision */
  rev?: number;
  /** remove the tenant's screening */
  unscreened?: boolean;
}

export interface TenantRequest {
  /** cost of executions in a calendar month above which an alert fires */
  budget?: number;
  ceilings?: CeilingsRequest;
  /** 1 to 63 of a-z, 0-9 and - */
  name: string;
  /** default: the server's quota for new tenants */
  quota?: QuotaRequest;
}

export interface Tenants {
  tenants: Tenant[];
}

export interface Terminal {
  /** 1 to 65535 */
  columns: number;
  /** 1 to 65535 */
  rows: number;
}

export interface Terms {
  /** maximum sandboxes and programs at a time; 0 is unlimited */
  max?: number;
  /** region of the provider */
  region?: string;
  /** price of one second of a sandbox */
  second?: number;
}

export interface TermsChange {
  /** maximum sandboxes and programs at a time; 0 is unlimited */
  max?: number;
  /** region of the provider */
  region?: string;
  /** price of one second of a sandbox */
  second?: number;
}

export interface TestRequest {
  /** settings to test; default: the stored ones */
  config?: Record<string, unknown>;
}

export interface TokenRule {
  audiences: string[] | null;
  issuer: string;
}

export interface Usage {
  usage: UsageLine[];
}

export interface UsageLine {
  /** cost of executions, by the rates of their providers */
  cost?: number;
  /** reserved */
  cpu_ms: number;
  day: string;
  egress_bytes: number;
  execution_ms: number;
  executions: number;
  /** reserved */
  gib_seconds: number;
  label?: string;
  /** current size of all versions of workspaces; only in today's total, and only while the store is readable */
  stored_bytes?: number;
  tenant: string;
  /** value of the label */
  value?: string;
}

export interface Version {
  version: string;
}

export interface Volume {
  created: string;
  id: string;
  name: string;
  /** size of the file system in bytes; it needs a small part for itself */
  size: number;
  /** bytes of the server's disk that it takes */
  used: number;
}

export interface VolumeAttributesRequest {
  /** ID of the group that owns it */
  gid?: number;
  /** permission bits as a number: 420 is 0644 */
  mode?: number;
  /** path in the volume */
  path: string;
  /** ID of the user that owns it */
  uid?: number;
}

export interface VolumeDirRequest {
  /** create missing parents, and accept an existing directory */
  force?: boolean;
  /** ID of the group that owns it */
  gid?: number;
  /** permission bits as a number: 420 is 0644 */
  mode?: number;
  /** path in the volume */
  path: string;
  /** ID of the user that owns it */
  uid?: number;
}

export interface VolumeEntries {
  entries: VolumeEntry[];
}

export interface VolumeEntry {
  accessed: string;
  /** time of the last change of the content, the owner or the mode */
  changed: string;
  /** ID of the group that owns it */
  gid: number;
  /** permission bits */
  mode: number;
  modified: string;
  /** the path's last part */
  name: string;
  /** path in the volume, with a slash at the beginning */
  path: string;
  /** in bytes */
  size: number;
  /** target of a symbolic link, as it was written */
  target?: string;
  /** file, directory, symlink, or other */
  type: string;
  /** ID of the user that owns it */
  uid: number;
}

export interface VolumeMount {
  /** in responses: ID of the volume */
  id?: string;
  /** the volume's name or ID */
  name: string;
  /** absolute path in the sandbox; it is created if the image lacks it */
  path: string;
  /** the sandbox cannot change the volume */
  read_only?: boolean;
}

export interface VolumeRequest {
  /** 1 to 128 of letters, digits, _ and -, unique among the tenant's volumes */
  name: string;
  /** size of the file system in bytes; default: the server's */
  size?: number | string;
}

export interface Volumes {
  volumes: Volume[];
}

export type WatchEnd = Record<string, unknown>;

/** One event per line or message. The last one is result or error. */
export type WatchEndEvent = WatchingEvent | ChangeEvent | PingEvent | WatchEndResultEvent | ErrorEvent;

export type WatchEndResultEvent = WatchEnd & {
  event: "result";
};

export interface WatchingEvent {
  event: "watching";
}

export interface Webhook {
  created: string;
  enabled: boolean;
  /** types of events; empty means all */
  events: string[];
  /** when the delivery of the next event first failed */
  failing_since?: string;
  id: string;
  labels?: Record<string, string>;
  name: string;
  updated: string;
  url: string;
}

export interface WebhookChange {
  /** a webhook that is enabled again receives only later events */
  enabled?: boolean;
  /** an empty list means all */
  events?: string[];
  name?: string;
  secret?: string;
  url?: string;
}

export interface WebhookRequest {
  /** default true */
  enabled?: boolean;
  /** types of events; default: all */
  events?: string[];
  /** only events of sandboxes that have all of these labels */
  labels?: Record<string, string>;
  /** any text */
  name: string;
  /** key of the signatures */
  secret: string;
  /** address that receives a POST for each event; https */
  url: string;
}

export interface Webhooks {
  webhooks: Webhook[];
}

export interface Whoami {
  /** email address that the identity provider verified */
  email?: string;
  expires?: string;
  grant_id?: string;
  /** identity provider of a person who signed in */
  issuer?: string;
  key_id?: string;
  name: string;
  role: "viewer" | "member" | "admin" | "operator";
  /** names of the sandboxes to which the grant is restricted */
  sandboxes?: string[];
  scopes?: string[];
  /** ID of the browser session */
  session_id?: string;
  subject?: string;
  tenant: string;
  /** tokens of an identity provider that this server accepts */
  tokens?: TokenRule;
}

export interface Workspace {
  created: string;
  /** newest version; omitted before the first */
  head?: WorkspaceVersion;
  id: string;
  name: string;
  /** storage: local or s3 */
  store: string;
}

export interface WorkspaceChange {
  /** added, changed or removed */
  kind: string;
  /** relative to /workspace; bytes that are not UTF-8 as \xNN */
  path: string;
  size: number;
  /** file, directory or symlink */
  type: string;
}

export interface WorkspaceCommit {
  /** captured files and links from outside /workspace */
  captured?: WorkspaceFile[];
  /** total number */
  changed: number;
  /** changes in the version, the first 1000 */
  changes: WorkspaceChange[];
  /** why the changes were not saved at the end of the sandbox */
  error?: ProgramError;
  name: string;
  /** total number */
  passed: number;
  /** files that were skipped, the first 1000 */
  skipped: WorkspaceSkip[];
  /** newest version; the previous one if nothing changed */
  version?: WorkspaceVersion;
}

export interface WorkspaceDiff {
  changes: WorkspaceChange[];
}

export interface WorkspaceFile {
  /** permission bits in octal digits */
  mode: string;
  /** absolute path in the sandbox; bytes that are not UTF-8 as \xNN */
  path: string;
  size: number;
  /** target of a symbolic link */
  target?: string;
  /** file or symlink */
  type: string;
}

export interface WorkspaceFiles {
  files: WorkspaceFile[];
}

export interface WorkspaceRequest {
  /** 1 to 63 of a-z, 0-9 and -, unique among the tenant's workspaces */
  name: string;
}

export interface WorkspaceSkip {
  /** path relative to /workspace, or absolute for captures */
  path: string;
  reason: string;
}

export interface WorkspaceUse {
  /** absolute paths outside /workspace; a commit includes changes at and below them; default none */
  capture?: string[];
  /** in responses: ID of the workspace */
  id?: string;
  /** read_only, overlay (the default: only a commit saves changes) or direct (changes are saved automatically) */
  mode?: "read_only" | "overlay" | "direct";
  /** the workspace's name */
  name: string;
  /** paths relative to /workspace; a commit includes only changes at and below them; default: all */
  prefixes?: string[];
  /** version to start with; default: the newest. In responses: the base of the next commit */
  version?: number;
}

export interface WorkspaceVersion {
  actor: string;
  /** base version; 0 for none */
  base: number;
  /** number of captured files and links from outside /workspace */
  captured?: number;
  /** their size in bytes */
  captured_size?: number;
  created: string;
  /** digest of all names, modes and contents */
  digest: string;
  files: number;
  number: number;
  /** version that this one restored */
  restored?: number;
  /** ID of the sandbox that created it */
  sandbox?: string;
  /** bytes of all files */
  size: number;
}

export interface WorkspaceVersions {
  versions: WorkspaceVersion[];
}

export interface Workspaces {
  workspaces: Workspace[];
}
