// The audit log, newest first. The API lists lines oldest first; they are numbered
// without gaps, so the newest are those after the head's number less some.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { get, path } from "./api";
import type { AuditLine, AuditPage as Page } from "./nouns";

interface Read {
  head: number; // all lines up to this one that match are read
  oldest: number; // the number after which reading has begun
  lines: AuditLine[]; // oldest first
}

const page = 1000; // the most lines that one request returns
const windows = 5; // requests to read older lines, before the user requests more

export interface Selection {
  sandbox?: string;
  since?: string;
}

const query = (s: Selection) => (s.sandbox ? `&sandbox=${path(s.sandbox)}` : "") + (s.since ? `&since=${path(s.since)}` : "");

/** older reads backwards until it has enough lines. */
async function older(r: Read, s: Selection, enough: number, signal?: AbortSignal): Promise<Read> {
  let { oldest, lines } = r;
  const had = lines.length;
  for (let n = 0; n < windows && oldest > 0 && lines.length - had < enough; n++) {
    const after = Math.max(0, oldest - page);
    const p = await get<Page>(`/v1/audit?limit=${page}&after=${after}${query(s)}`, signal);
    const end = oldest;
    lines = [...p.lines.filter((l) => l.seq <= end), ...lines];
    oldest = after;
  }
  return { ...r, oldest, lines };
}

/** newer reads the lines since the last call. */
async function newer(r: Read, s: Selection, signal?: AbortSignal): Promise<Read> {
  let { head, lines } = r;
  for (;;) {
    const p = await get<Page>(`/v1/audit?limit=${page}&after=${head}${query(s)}`, signal);
    if (p.lines.length > 0) lines = [...lines, ...p.lines];
    head = p.next || Math.max(head, p.head.seq);
    if (!p.next) return { ...r, head, lines };
  }
}

/** useLog reads the audit log, and its new events. */
export function useLog(s: Selection, enabled = true, enough = 200) {
  const client = useQueryClient();
  const key = ["log", s.sandbox, s.since];
  const [busy, setBusy] = useState(false);
  const log = useQuery({
    queryKey: key,
    enabled,
    refetchInterval: 3000,
    structuralSharing: false,
    queryFn: async ({ signal }) => {
      const had = client.getQueryData<Read>(key);
      if (had) return newer(had, s, signal);
      const { head } = await get<Page>(`/v1/audit?limit=1&after=${2 ** 40}`, signal);
      return older({ head: head.seq, oldest: head.seq, lines: [] }, s, enough, signal);
    },
  });
  const rows = useMemo(() => pair(log.data?.lines ?? []), [log.data]);
  const more = async () => {
    const had = client.getQueryData<Read>(key);
    if (!had) return;
    setBusy(true);
    try {
      client.setQueryData(key, await older(had, s, enough));
    } finally {
      setBusy(false);
    }
  };
  return { log, rows, more, busy, whole: log.data?.oldest === 0 };
}

export type Status = "ok" | "failed" | "refused" | "running" | "seen";

/** Operation is an operation in the log: its intent and its outcome, if they have been read. */
export interface Operation {
  seq: number;
  time: string;
  op: string;
  actor: string;
  sandbox?: string;
  status: Status;
  says: string;
  took?: number;
  detail: Record<string, string>;
  lines: AuditLine[];
}

const within = (part: Record<string, string> = {}, all: Record<string, string> = {}) => Object.entries(part).every(([k, v]) => all[k] === v);

/** pair combines each intent with its outcome, newest first. */
export function pair(lines: AuditLine[]): Operation[] {
  const open: AuditLine[] = [];
  const out: Operation[] = [];
  for (const l of lines) {
    if (l.phase === "intent") {
      open.push(l);
      continue;
    }
    let at = -1;
    if (l.phase === "outcome") {
      const same = (i: AuditLine) => i.op === l.op && i.actor === l.actor && (!i.sandbox || i.sandbox === l.sandbox);
      at = open.findIndex((i) => same(i) && within(i.detail, l.detail));
    }
    const [intent] = at < 0 ? [undefined] : open.splice(at, 1);
    out.push(operation(intent ? [intent, l] : [l]));
  }
  return [...out, ...open.map((l) => operation([l]))].sort((a, b) => b.seq - a.seq);
}

function operation(lines: AuditLine[]): Operation {
  const last = lines[lines.length - 1]!;
  const detail = { ...lines[0]!.detail, ...last.detail };
  const [status, says] = judge(last, detail);
  const took = detail.duration_ms !== undefined ? Number(detail.duration_ms) : lines.length === 2 ? Date.parse(last.time) - Date.parse(lines[0]!.time) : undefined;
  return { seq: last.seq, time: lines[0]!.time, op: last.op, actor: last.actor, sandbox: last.sandbox, status, says, took, detail, lines };
}

function judge(l: AuditLine, d: Record<string, string>): [Status, string] {
  if (l.phase === "refused") return ["refused", `refused: ${words(l.kind)}`];
  if (l.phase === "intent") return ["running", "no outcome yet"];
  if (l.phase === "observed") return d.verdict === "denied" ? ["refused", "denied"] : ["seen", d.verdict ? words(d.verdict) : "observed"];
  if (l.kind) return ["failed", words(l.kind)];
  if (d.verdict === "timed_out" || d.verdict === "oom_killed") return ["failed", d.verdict === "timed_out" ? "timed out" : "out of memory"];
  if (d.signal) return ["failed", `signal ${d.signal}`];
  if (d.exit_code && d.exit_code !== "0") return ["failed", `exit ${d.exit_code}`];
  return ["ok", "ok"];
}

const words = (s = "") => s.replaceAll("_", " ");

const programs: Record<string, string> = { run: "run", "sandbox.exec": "command", "context.run": "code", "process.start": "process", "tool.run": "tool" };

/** kindOf returns the kind of an execution, or undefined for other operations. */
export const kindOf = (o: Operation): string | undefined => programs[o.op];

/** whatOf returns the program of an execution. */
export function whatOf(o: Operation): string {
  const d = o.detail;
  if (d.command) return d.command;
  if (d.language) return `${d.language} ${d.code_hash?.slice(7, 15) ?? ""}`.trim();
  return d.path ?? d.name ?? "";
}

/** labelsOf returns the labels of an operation's sandbox. */
export const labelsOf = (o: Operation) => Object.entries(o.detail).filter(([k]) => k.startsWith("label.")).map(([k, v]) => `${k.slice(6)}=${v}`);
