import { Button, Code, Drawer, Group, SegmentedControl, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { get, pages, path } from "../api";
import { kindOf, labelsOf, type Operation, useLog, whatOf } from "../log";
import { may, type RunSummary, type Whoami } from "../nouns";
import { Ago, bytes, Empty, Fetched, Go, Heading, Output, State, when } from "../parts";
import { Connect } from "../snippets";
import { type Column, List } from "../table";
import { span } from "../time";
import type * as wire from "../wire";

const ranges: Record<string, number> = { "1 hour": 3_600_000, "24 hours": 86_400_000, "7 days": 7 * 86_400_000, All: 0 };

const columns: Column<Operation>[] = [
  { title: "Result", cell: (o) => <State value={o.status} says={o.says} />, sort: (o) => o.says },
  { title: "What", cell: (o) => <Code fz="xs">{whatOf(o).slice(0, 90)}</Code> },
  { title: "Kind", cell: kindOf, sort: (o) => kindOf(o) ?? "", wide: true },
  { title: "Started", cell: (o) => <Ago at={o.time} />, sort: (o) => o.seq },
  { title: "Duration", cell: (o) => span(o.took), sort: (o) => o.took ?? -1, right: true, wide: true },
  { title: "Sandbox", cell: (o) => (o.op === "run" ? "one-shot" : o.detail.name && <Go to={`/sandboxes/${path(o.detail.name)}`}>{o.detail.name}</Go>), sort: (o) => o.detail.name ?? "", wide: true },
  { title: "By", cell: (o) => o.actor, sort: (o) => o.actor, wide: true },
];

/** Runs shows the history of executions to who may read the audit log, and otherwise the runs whose results are stored. */
export default function Runs({ who }: { who: Whoami }) {
  return may(who, "admin") ? <Logged who={who} /> : <Stored who={who} />;
}

const storedColumns: Column<RunSummary>[] = [
  { title: "Result", cell: (r) => <State value={r.status} says={says(r)} />, sort: (r) => r.status },
  { title: "Name", cell: (r) => <Code fz="xs">{r.sandbox}</Code>, sort: (r) => r.sandbox },
  { title: "Started", cell: (r) => <Ago at={r.started} />, sort: (r) => r.started },
  { title: "Duration", cell: (r) => span(r.duration_ms), sort: (r) => r.duration_ms, right: true },
  { title: "Exit code", cell: (r) => r.exit_code, sort: (r) => r.exit_code, right: true, wide: true },
  { title: "Output", cell: (r) => bytes(r.stdout_bytes + r.stderr_bytes), sort: (r) => r.stdout_bytes + r.stderr_bytes, right: true, wide: true },
  { title: "Error", cell: (r) => r.error && `${r.error.name}: ${r.error.message}`.slice(0, 90), wide: true },
];

const says = (r: RunSummary) => r.status.replaceAll("_", " ");

const mostStored = 2000;

/** Stored lists the runs whose results are stored. */
function Stored({ who }: { who: Whoami }) {
  const list = useQuery({ queryKey: ["runs"], queryFn: ({ signal }) => pages<"runs", RunSummary>("/v1/runs", "runs", mostStored, signal), refetchInterval: 8000 });
  const [open, setOpen] = useState<RunSummary>();
  return (
    <>
      <Heading title="Runs" />
      <Fetched query={list}>
        {({ runs, more }) => (
          <List
            name="runs"
            rows={runs}
            id={(r) => r.sandbox}
            columns={storedColumns}
            text={(r) => [r.sandbox, r.id, r.status, r.image, r.provider, r.error?.name, r.error?.message].filter(Boolean).join(" ")}
            filters={[{ name: "Status", of: (r) => r.status }]}
            onOpen={setOpen}
            below={
              more && (
                <Text size="sm" c="dimmed">
                  There are older runs. The command brig runs ls lists them.
                </Text>
              )
            }
            empty={<Empty next={<Connect who={who} title="Run your first program" />}>No result of a run is stored.</Empty>}
          />
        )}
      </Fetched>
      <Drawer opened={!!open} onClose={() => setOpen(undefined)} position="right" size="lg" title={open?.sandbox}>
        {open && (
          <Stack>
            <Group gap="xs">
              <State value={open.status} says={says(open)} />
              <Text size="sm">
                {when(open.started)}, took {span(open.duration_ms)}, exit code {open.exit_code}
                {open.provider && `, on ${open.provider}`}
              </Text>
            </Group>
            <Result of={open.sandbox} />
          </Stack>
        )}
      </Drawer>
    </>
  );
}

/** Logged shows the history of executions from the audit log. */
function Logged({ who }: { who: Whoami }) {
  const [params, setParams] = useSearchParams();
  const range = ranges[params.get("range") ?? ""] === undefined ? "7 days" : params.get("range")!;
  // One time for each choice, so that the query stays the same while time passes.
  const since = useMemo(() => (ranges[range] ? new Date(Date.now() - ranges[range]!).toISOString() : undefined), [range]);
  const { log, rows, more, busy, whole } = useLog({ since });
  const runs = useMemo(() => rows.filter(kindOf), [rows]);
  const [open, setOpen] = useState<Operation>();
  return (
    <>
      <Heading title="Runs">
        <SegmentedControl size="xs" data={Object.keys(ranges)} value={range} onChange={(r) => setParams((p) => (p.set("range", r), p), { replace: true })} aria-label="Range" />
      </Heading>
      <Fetched query={log}>
        {() => (
          <List
            name="runs"
            rows={runs}
            id={(o) => String(o.lines[0]!.seq)}
            columns={columns}
            text={(o) => `${whatOf(o)} ${kindOf(o)} ${o.says} ${o.actor} ${Object.values(o.detail).join(" ")} ${labelsOf(o).join(" ")}`}
            filters={[
              { name: "Status", of: (o) => o.status },
              { name: "Kind", of: (o) => kindOf(o) ?? "" },
              { name: "By", of: (o) => o.actor },
              { name: "Label", of: labelsOf },
            ]}
            onOpen={setOpen}
            empty={<Empty next={<Connect who={who} title="Run your first program" />}>{whole ? "Nothing ran in this time." : "No run is among the newest entries of the log."}</Empty>}
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
      <Drawer opened={!!open} onClose={() => setOpen(undefined)} position="right" size="lg" title={open && `${kindOf(open)} ${open.op === "run" ? (open.detail.name ?? "") : ""}`}>
        {open && <Details of={runs.find((o) => o.lines[0]!.seq === open.lines[0]!.seq) ?? open} />}
      </Drawer>
    </>
  );
}

function Details({ of: o }: { of: Operation }) {
  const name = o.op === "run" ? (o.detail.name ?? o.sandbox) : undefined;
  return (
    <Stack>
      <Group gap="xs">
        <State value={o.status} says={o.says} />
        <Text size="sm">
          {when(o.time)}
          {o.took !== undefined && `, took ${span(o.took)}`}, by {o.actor}
        </Text>
      </Group>
      <Output>{whatOf(o)}</Output>
      {name && o.status !== "running" && <Result of={name} />}
      {o.op !== "run" && o.detail.name && (
        <Text size="sm">
          The output is among the executions of <Go inline to={`/sandboxes/${path(o.detail.name)}?tab=executions`}>{o.detail.name}</Go>.
        </Text>
      )}
      <Title order={3}>In the audit log</Title>
      <Facts of={o} />
    </Stack>
  );
}

/** Result shows the stored result of a finished run. */
function Result({ of: name }: { of: string }) {
  const outcome = useQuery({ queryKey: ["run", name], queryFn: ({ signal }) => get<wire.RunAnswer>(`/v1/runs/${path(name)}`, signal), refetchInterval: false, retry: false });
  return (
    <>
      {outcome.data && (
        <>
          {outcome.data.error && <Output>{outcome.data.error.traceback || outcome.data.error.message}</Output>}
          {(["stdout", "stderr"] as const).map(
            (s) =>
              outcome.data[s] && (
                <div key={s} data-testid={s}>
                  <Title order={3}>{s}</Title>
                  <Output>{outcome.data[s]}</Output>
                </div>
              ),
          )}
          {outcome.data.has_result && (
            <>
              <Title order={3}>Result</Title>
              <Output>{JSON.stringify(outcome.data.result, null, 2)}</Output>
            </>
          )}
        </>
      )}
      {outcome.data && !outcome.data.stdout && !outcome.data.stderr && !outcome.data.error && !outcome.data.has_result && !outcome.data.artifacts.length && (
        <Text size="sm" c="dimmed">
          The program printed nothing and returned nothing.
        </Text>
      )}
      {!!outcome.data?.artifacts.length && (
        <Text size="sm">Artifacts: {outcome.data.artifacts.map((a) => a.path).join(", ")}</Text>
      )}
      {outcome.error && (
        <Text size="sm" c="dimmed">
          The output is no longer stored: {outcome.error.message}
        </Text>
      )}
    </>
  );
}

/** Facts shows the details of an operation in the audit log. */
export function Facts({ of: o }: { of: Operation }) {
  const facts = [["sandbox", o.sandbox ?? ""], ...Object.entries(o.detail), ["lines", o.lines.map((l) => `${l.seq} ${l.phase}`).join(", ")]].filter(([, v]) => v);
  return (
    <Table>
      <Table.Tbody>
        {facts.map(([k, v]) => (
          <Table.Tr key={k}>
            <Table.Td c="dimmed" w={120}>
              {k}
            </Table.Td>
            <Table.Td style={{ overflowWrap: "anywhere" }}>{v}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
