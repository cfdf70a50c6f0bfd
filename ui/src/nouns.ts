// The documents of the API that the pages use; docs/openapi.json has them all.

export interface Whoami {
  name: string;
  tenant: string;
  role: Role;
  email?: string;
  key_id?: string;
  session_id?: string;
  scopes?: string[] | null;
}

export type Role = "viewer" | "member" | "admin" | "operator";
const roles: Role[] = ["viewer", "member", "admin", "operator"];

/** may reports whether a role is at least another one. */
export const may = (who: Whoami, least: Role) => roles.indexOf(who.role) >= roles.indexOf(least);

export interface Route {
  provider: string;
  reason: string;
  attempts?: { provider: string; code: string; message: string; took_ms: number }[];
}

export interface Sandbox {
  id: string;
  name: string;
  tenant: string;
  state: string;
  image?: string;
  digest: string;
  provider: string;
  route?: Route;
  created: string;
  expires?: string;
  ended?: string;
  origin?: string;
  exit?: { code: number; reason: string; oom_killed: boolean };
  limits?: Limits;
  labels?: Record<string, string>;
  pausable?: boolean;
  pause?: { at: string; bytes: number; left_ms: number; files_only?: boolean };
  ttl_ms?: number;
  template?: string;
  egress?: Egress;
  secrets?: { name: string; env?: string }[] | null;
  workspace?: { name: string; mode?: string; version?: number };
  require?: Record<string, string>;
  notes?: string[];
  pool?: string;
  enforcement?: Record<string, Enforcement>;
}

export interface Limits {
  memory?: number;
  cpus?: number;
  processes?: number;
  disk?: number;
  open_files?: number;
  output?: number;
}

export interface Egress {
  bandwidth?: number;
  rules?: EgressRule[];
}

export interface EgressRule {
  host?: string;
  cidr?: string;
  ports?: number[];
  methods?: string[];
  paths?: string[];
  deny?: boolean;
}

/** Measured is the resource usage of a running sandbox. */
export interface Measured {
  at: string;
  cpu_ms: number;
  memory: number;
  cache: number;
  disk?: number;
  sent: number;
  received: number;
}

export interface Alert {
  name: string;
  severity: string;
  state: string;
  summary: string;
  hint?: string;
  since?: string;
  labels?: Record<string, string>;
}

export interface Shelf {
  image: string;
  language?: string;
  limits: Limits;
  target: number;
  ready: number;
  making: number;
  hits: number;
  misses: number;
  failed: number;
  refill_ms: number;
}

export interface UsageLine {
  tenant: string;
  day: string;
  executions: number;
  execution_ms: number;
  cpu_ms: number;
  gib_seconds: number;
  egress_bytes: number;
  cost?: number;
}

export interface Enforcement {
  level: "boundary" | "gaps" | "none";
  how: string;
  gaps?: string[];
  evidence?: string[];
}

export interface Field {
  name: string;
  type: "string" | "integer" | "number" | "boolean" | "array";
  label: string;
  description?: string;
  placeholder?: string;
  default?: unknown;
  options?: string[];
  min?: number;
  max?: number;
  required?: boolean;
  secret?: boolean;
  multiline?: boolean;
  readonly?: boolean;
}

export interface Provider {
  id: string;
  driver: string;
  title: string;
  description: string;
  tags: string[];
  languages: string[];
  fields: Field[];
  configured: boolean;
  active: boolean;
  home?: boolean;
  config?: Record<string, unknown>;
  terms: { region?: string; max?: number; second?: number };
  up: boolean;
  why?: string;
  users: number;
  runs_only?: boolean;
  capabilities?: { isolation: string; enforces: Record<string, Enforcement> };
}

export interface ProviderTest {
  success: boolean;
  message: string;
  hint?: string;
  latency_ms: number;
  exit_code: number;
  stdout: string;
  stderr: string;
}

export interface Routing {
  order?: string[];
  split?: Record<string, number>;
  overflow?: string[];
  prefer?: string;
  regions?: string[];
  attempts?: number;
}

export interface Outcome {
  sandbox: string;
  result: unknown;
  has_result: boolean;
  error: { code?: string; name: string; message: string; traceback?: string; hint?: string } | null;
  exit_code: number;
  duration_ms: number;
  route?: Route;
  pool?: string;
  artifacts: { path: string; mime_type: string; size: number; content_b64: string }[];
}

export interface RunSummary {
  sandbox: string;
  id?: string;
  status: string;
  exit_code: number;
  started: string;
  duration_ms: number;
  stdout_bytes: number;
  stderr_bytes: number;
  artifacts: number;
  error?: Outcome["error"];
  image?: string;
  provider?: string;
}

export interface Entry {
  name: string;
  path: string;
  type: string;
  size: number;
  mode: number;
  owner?: string;
  modified?: string;
  target?: string;
  target_type?: string;
}

export interface AuditLine {
  seq: number;
  time: string;
  op: string;
  phase: string;
  kind?: string;
  actor: string;
  sandbox?: string;
  detail?: Record<string, string>;
  hash: string;
  prev: string;
}

/** Execution is a command that a sandbox has run. */
export interface Execution {
  exec: string;
  command?: string[] | null;
  shell?: string;
  done: boolean;
  exit_code: number;
  signal?: string;
  timed_out: boolean;
  oom_killed: boolean;
  started: string;
  duration_ms: number;
  stdout?: string;
  stderr?: string;
}
