// The JSON documents of the API that the pages use, under the names of the pages.
// `make docs` generates them in wire.ts, which has them all.
import type { Whoami } from "./wire";

export type {
  ConfigField as Field,
  EgressRule,
  Enforcement,
  Entry,
  Execution,
  Image,
  Key,
  Line as AuditLine,
  Page as AuditPage,
  Process,
  Provider,
  ProviderTest,
  Quota,
  Routing,
  RoutingChange,
  RunAnswer as Outcome,
  RunSummary,
  Sandbox,
  SandboxUsage as Measured,
  Secret,
  Tenant,
  UsageLine,
  Whoami,
  Workspace,
} from "./wire";

export type Role = Whoami["role"];
const roles: Role[] = ["viewer", "member", "admin", "operator"];

/** may reports whether a role is at least another one. */
export const may = (who: Whoami, least: Role) => roles.indexOf(who.role) >= roles.indexOf(least);
