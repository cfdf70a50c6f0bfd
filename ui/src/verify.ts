import { get } from "./api";
import type { AuditLine, AuditPage as Page } from "./nouns";

// Verifies the chain of the audit log, like package audit: each line's hash covers
// its fields, each after its length, and the previous hash.

export interface Verdict {
  ok: boolean;
  message: string;
}

const encoder = new TextEncoder();

class Bytes {
  private readonly parts: Uint8Array[] = [];
  number(n: bigint, size: 4 | 8) {
    const b = new DataView(new ArrayBuffer(size));
    if (size === 8) b.setBigUint64(0, BigInt.asUintN(64, n));
    else b.setUint32(0, Number(n));
    this.parts.push(new Uint8Array(b.buffer));
  }
  put(...texts: string[]) {
    for (const t of texts) {
      const b = encoder.encode(t);
      this.number(BigInt(b.length), 4);
      this.parts.push(b);
    }
  }
  hex(s: string) {
    this.parts.push(Uint8Array.from(s.match(/../g) ?? [], (x) => parseInt(x, 16)));
  }
  all(): Uint8Array<ArrayBuffer> {
    const out = new Uint8Array(this.parts.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const p of this.parts) {
      out.set(p, at);
      at += p.length;
    }
    return out;
  }
}

// nanoseconds of a time from the API, which has a higher precision than Date.
function clock(t: string): [bigint, bigint] {
  const fraction = /\.(\d+)Z$/.exec(t)?.[1] ?? "";
  return [BigInt(Math.floor(Date.parse(t.replace(/\.\d+Z$/, "Z")) / 1000)), BigInt(fraction.padEnd(9, "0"))];
}

/** byBytes compares strings by their UTF-8 bytes, like Go, and not by UTF-16. */
function byBytes(a: string, b: string): number {
  const x = encoder.encode(a);
  const y = encoder.encode(b);
  for (let i = 0; i < Math.min(x.length, y.length); i++) if (x[i] !== y[i]) return x[i]! - y[i]!;
  return x.length - y.length;
}

/** hashOf computes the hash of a line. */
export async function hashOf(l: AuditLine & { tenant: string }): Promise<string> {
  const b = new Bytes();
  b.put("brig audit line 1");
  b.number(BigInt(l.seq), 8);
  b.hex(l.prev);
  const [seconds, nanos] = clock(l.time);
  b.number(seconds, 8);
  b.number(nanos, 4);
  b.put(l.op, l.actor, l.tenant, l.sandbox ?? "", l.phase, l.kind ?? "");
  const detail = Object.entries(l.detail ?? {}).sort(([a], [z]) => byBytes(a, z));
  b.number(BigInt(detail.length), 4);
  for (const [k, v] of detail) b.put(k, v);
  const sum = await crypto.subtle.digest("SHA-256", b.all());
  return Array.from(new Uint8Array(sum), (x) => x.toString(16).padStart(2, "0")).join("");
}

/** verify reads the tenant's whole log, and reports whether it is one chain. */
export async function verify(): Promise<Verdict> {
  if (!globalThis.crypto?.subtle) return { ok: false, message: "This browser hashes on https and localhost only: brig audit export | brig audit verify" };
  try {
    let count = 0;
    let before: AuditLine | undefined;
    for (let after = 0; ; ) {
      const p = await get<Page>(`/v1/audit?limit=1000&after=${after}`);
      for (const l of p.lines) {
        if (l.hash !== (await hashOf(l))) return { ok: false, message: `Line ${l.seq} is not what was written.` };
        if (before && (l.seq !== before.seq + 1 || l.prev !== before.hash)) return { ok: false, message: `Line ${l.seq} does not follow on line ${before.seq}.` };
        before = l;
        count++;
      }
      if (!p.next) {
        if (before && before.seq < p.head.seq) return { ok: false, message: `The log ends at line ${before.seq}, its head is at ${p.head.seq}.` };
        return { ok: true, message: `${count} lines are one chain; its head is ${p.head.hash.slice(0, 16)}….` };
      }
      after = p.next;
    }
  } catch (e) {
    return { ok: false, message: `The log could not be read: ${e instanceof Error ? e.message : e}` };
  }
}
