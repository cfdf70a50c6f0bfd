import { Alert, Button, Drawer, Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { get, path } from "../api";
import { labelsOf, type Operation, useLog } from "../log";
import type { Whoami } from "../nouns";
import { Ago, Empty, Fetched, Go, Heading, State, when } from "../parts";
import { type Column, List } from "../table";
import { type Verdict, verify } from "../verify";
import { Facts } from "./Runs";
import type * as wire from "../wire";

const about = (o: Operation) => o.detail.name ?? o.detail.path ?? o.detail.host ?? o.detail.command ?? o.sandbox ?? "";

export const columns: Column<Operation>[] = [
  { title: "Time", cell: (o) => <Ago at={o.time} />, sort: (o) => o.seq },
  { title: "Operation", cell: (o) => <span style={{ whiteSpace: "nowrap" }}>{o.op}</span>, sort: (o) => o.op },
  { title: "Result", cell: (o) => <State value={o.status} says={o.says} />, sort: (o) => o.says },
  { title: "About", cell: (o) => <Text size="sm" lineClamp={1} style={{ overflowWrap: "anywhere" }}>{about(o)}</Text>, sort: about, wide: true },
  { title: "By", cell: (o) => o.actor || "the sandbox", sort: (o) => o.actor, wide: true },
  { title: "Lines", cell: (o) => <span style={{ whiteSpace: "nowrap" }}>{o.lines.map((l) => l.seq).join(", ")}</span>, right: true, wide: true },
];

export const filters = [
  { name: "Operation", of: (o: Operation) => o.op },
  { name: "Status", of: (o: Operation) => o.status as string },
  { name: "By", of: (o: Operation) => o.actor },
  { name: "Label", of: labelsOf },
];

export const textOf = (o: Operation) => `${o.op} ${o.actor} ${o.says} ${o.sandbox ?? ""} ${Object.entries(o.detail).flat().join(" ")} ${o.lines.map((l) => `#${l.seq}`).join(" ")}`;

const ranges: Record<string, number> = { "24 hours": 86_400_000, "30 days": 30 * 86_400_000, All: 0 };

/** Audit shows the tenant's audit log, and verifies it. */
export default function Audit({ who }: { who: Whoami }) {
  const [verdict, setVerdict] = useState<Verdict>();
  const [checking, setChecking] = useState(false);
  const [open, setOpen] = useState<Operation>();
  const [params, setParams] = useSearchParams();
  const range = ranges[params.get("range") ?? ""] === undefined ? "All" : params.get("range")!;
  const since = useMemo(() => (ranges[range] ? new Date(Date.now() - ranges[range]!).toISOString() : undefined), [range]);
  const { log, rows, more, busy, whole } = useLog({ since });
  const check = async () => {
    setChecking(true);
    setVerdict(await verify());
    setChecking(false);
  };
  return (
    <>
      <Heading title="Audit">
        <SegmentedControl size="xs" data={Object.keys(ranges)} value={range} onChange={(r) => setParams((p) => (p.set("range", r), p), { replace: true })} aria-label="Range" />
        <Export />
        <Button variant="light" size="compact-sm" onClick={check} loading={checking}>
          Verify
        </Button>
      </Heading>
      {verdict && (
        <Alert color={verdict.ok ? "green" : "red"} mb="md" data-testid="verdict">
          {verdict.message}
        </Alert>
      )}
      <Fetched query={log}>
        {() => (
          <List
            name="entries"
            rows={rows}
            id={(o) => String(o.lines[0]!.seq)}
            columns={columns}
            text={textOf}
            filters={filters}
            onOpen={setOpen}
            empty={<Empty>Nothing is on record for {who.tenant} in this time.</Empty>}
            below={
              !whole && (
                <Button size="compact-sm" variant="default" onClick={more} loading={busy}>
                  Load older
                </Button>
              )
            }
          />
        )}
      </Fetched>
      <Entry of={open} onClose={() => setOpen(undefined)} />
    </>
  );
}

/** Entry shows all details of an operation. */
export function Entry({ of: o, onClose }: { of?: Operation; onClose: () => void }) {
  return (
    <Drawer opened={!!o} onClose={onClose} position="right" size="lg" title={o?.op}>
      {o && (
        <Stack>
          <Group gap="xs">
            <State value={o.status} says={o.says} />
            <Text size="sm">
              {when(o.time)}, by {o.actor || "the sandbox"}
            </Text>
          </Group>
          <Facts of={o} />
          {o.sandbox && o.op !== "run" && o.detail.name && (
            <Text size="sm">
              Sandbox <Go inline to={`/sandboxes/${path(o.detail.name)}?tab=audit`}>{o.detail.name}</Go>
            </Text>
          )}
        </Stack>
      )}
    </Drawer>
  );
}

/** Export saves the whole log in the format of brig audit export. */
function Export() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const save = async () => {
    setBusy(true);
    setError("");
    try {
      const parts: string[] = [];
      const add = (o: unknown) => parts.push(`${JSON.stringify(o)}\n`);
      for (let after = 0; ; ) {
        const p = await get<wire.Page>(`/v1/audit?limit=1000&after=${after}`);
        if (parts.length === 0) add({ brig_audit: 1, begins: p.lines[0]?.seq ?? 1 });
        p.lines.forEach(add);
        if (!p.next) {
          add({ lines: parts.length - 1, head: p.head });
          break;
        }
        after = p.next;
      }
      const a = document.createElement("a");
      a.href = URL.createObjectURL(new Blob(parts, { type: "application/x-ndjson" }));
      a.download = `audit-${new Date().toISOString().slice(0, 10)}.jsonl`;
      a.click();
      URL.revokeObjectURL(a.href);
    } catch (e) {
      setError(e instanceof Error ? e.message : String(e));
    }
    setBusy(false);
  };
  return (
    <Button variant="default" size="compact-sm" onClick={save} loading={busy} title={error || "Save the whole log as lines of JSON"}>
      {error ? "Export failed" : "Export"}
    </Button>
  );
}
