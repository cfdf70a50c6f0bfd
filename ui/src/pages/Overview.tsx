import { Alert as Notice, Badge, Group, Paper, Progress, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, type ReactNode, Suspense, useMemo } from "react";
import { get } from "../api";
import { kindOf, type Operation, useLog, whatOf } from "../log";
import { may, type UsageLine, type Whoami } from "../nouns";
import { Ago, Go, Heading, Problem, Rows, State } from "../parts";
import { Connect } from "../snippets";
import { span } from "../time";
import type * as wire from "../wire";

const Chart = lazy(() => import("../Chart").then((m) => ({ default: m.Chart })));

const day = (back: number) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);
const days = 14;

/** Overview shows the state of the server and the tenant. */
export default function Overview({ who }: { who: Whoami }) {
  const admin = may(who, "admin");
  const operator = may(who, "operator");
  const ready = useQuery({ queryKey: ["ready"], queryFn: ({ signal }) => get<wire.Health>("/readyz", signal), retry: false });
  const version = useQuery({ queryKey: ["version"], queryFn: ({ signal }) => get<wire.Version>("/v1/version", signal), refetchInterval: false });
  const boxes = useQuery({ queryKey: ["sandboxes", "overview"], queryFn: ({ signal }) => get<wire.Sandboxes>("/v1/sandboxes?limit=1000", signal), refetchInterval: 8000 });
  const pool = useQuery({ queryKey: ["pool"], queryFn: ({ signal }) => get<wire.Pool>("/v1/pool", signal), enabled: operator });
  const alerts = useQuery({ queryKey: ["alerts"], queryFn: ({ signal }) => get<wire.Alerts>("/v1/alerts", signal), enabled: operator });
  const usage = useQuery({ queryKey: ["usage", "overview"], queryFn: ({ signal }) => get<wire.Usage>(`/v1/usage?from=${day(days - 1)}&to=${day(0)}`, signal), enabled: admin, refetchInterval: 15_000 });
  const tenant = useQuery({ queryKey: ["tenant"], queryFn: ({ signal }) => get<wire.Tenant>("/v1/tenant", signal), enabled: admin, refetchInterval: 60_000 });
  const { log, rows } = useLog({}, admin);
  const all = boxes.data?.sandboxes ?? [];
  const count = (state: string) => all.filter((s) => s.state === state).length;
  const more = boxes.data?.next_cursor ? "+" : "";
  const today = usage.data?.usage.find((l) => l.day === day(0));
  const month = usage.data?.usage.filter((l) => l.day.slice(0, 7) === day(0).slice(0, 7)).reduce((sum, l) => sum + (l.cost ?? 0), 0);
  const firing = alerts.data?.alerts.filter((a) => a.state === "firing") ?? [];
  const shelves = pool.data?.shelves ?? [];
  const poolReady = shelves.reduce((n, s) => n + s.ready, 0);
  const poolTarget = shelves.reduce((n, s) => n + s.target, 0);
  const hits = shelves.reduce((n, s) => n + s.hits, 0);
  const asked = hits + shelves.reduce((n, s) => n + s.misses, 0);
  const runs = rows.filter(kindOf);
  const failures = runs.filter((o) => o.status === "failed" || o.status === "refused").slice(0, 6);
  const died = all.filter((s) => s.exit && !["exited", "stopped", "killed", "lease_expired"].includes(s.exit.reason)).slice(0, 6);
  const quota = tenant.data?.quota.sandboxes;
  return (
    <>
      <Heading title="Overview">
        <Text size="sm" c="dimmed">
          {version.data?.version}
        </Text>
        {ready.error ? <Badge color="red" variant="light" tt="none">not ready</Badge> : ready.data && <Badge color="green" variant="light" tt="none" data-testid="ready">ready</Badge>}
      </Heading>
      <Stack>
        {ready.error && <Problem error={ready.error} />}
        {firing.map((a) => (
          <Notice key={a.name + JSON.stringify(a.labels)} color={a.severity === "critical" ? "red" : "yellow"} title={`${a.name} (${a.severity})`} role="alert">
            {a.summary} {a.hint} Since <Ago at={a.since} />.
          </Notice>
        ))}
        <SimpleGrid cols={{ base: 2, sm: 3, lg: operator ? 5 : 3 }} spacing="sm">
          <Figure name="Running sandboxes" value={boxes.data && `${count("running") + count("creating")}${more}`} note={quota ? `of ${quota} allowed, ${count("paused")} paused` : `${count("paused")} paused`} to="/sandboxes?State=running" error={boxes.error} />
          {admin && <Figure name="Executions today" value={usage.data && String(today?.executions ?? 0)} note={tenant.data?.quota.executions_per_day ? `of ${tenant.data.quota.executions_per_day} allowed` : `${span(today?.execution_ms ?? 0)} in all`} to="/runs" error={usage.error} />}
          {admin && <Figure name="Cost this month" value={month === undefined ? undefined : money(month)} note={tenant.data?.budget ? `of a budget of ${tenant.data.budget}` : "no budget is set"} to="/usage" error={usage.error}>{tenant.data?.budget ? <Progress mt={4} size="sm" value={Math.min(100, (100 * (month ?? 0)) / tenant.data.budget)} color={(month ?? 0) > tenant.data.budget ? "red" : "blue"} aria-label="Share of the budget" /> : null}</Figure>}
          {operator && <Figure name="Warm pool" value={pool.data && (poolTarget ? `${poolReady} of ${poolTarget}` : "off")} note={asked ? `${Math.round((100 * hits) / asked)} % of ${asked} served at once` : "not used yet"} to="/host" error={pool.error} />}
          {operator && <Figure name="Alerts" value={alerts.data && String(firing.length)} note={firing.length ? "firing now" : "none is firing"} to="/host" error={alerts.error} bad={firing.length > 0} />}
        </SimpleGrid>
        {admin && usage.data && <Executions lines={usage.data.usage} />}
        {admin ? (
          <Paper withBorder p="md">
            <Group justify="space-between" mb="xs">
              <Title order={2}>Recent failures</Title>
              <Go to="/runs?Status=failed">All failed runs</Go>
            </Group>
            {log.error ? <Problem error={log.error} /> : <Failures rows={failures} seen={runs.length} />}
          </Paper>
        ) : (
          died.length > 0 && (
            <Paper withBorder p="md">
              <Title order={2} mb="xs">
                Sandboxes that failed
              </Title>
              <Rows head={["Sandbox", "Why", "When"]} empty="">
                {died.map((s) => (
                  <Table.Tr key={s.id}>
                    <Table.Td><Go to={`/sandboxes/${encodeURIComponent(s.name)}`}>{s.name}</Go></Table.Td>
                    <Table.Td>{s.exit?.reason.replaceAll("_", " ")}</Table.Td>
                    <Table.Td><Ago at={s.ended} /></Table.Td>
                  </Table.Tr>
                ))}
              </Rows>
            </Paper>
          )
        )}
        <Connect who={who} />
      </Stack>
    </>
  );
}

const money = (n: number) => (n === 0 ? "0" : n < 1 ? n.toFixed(4) : n.toFixed(2));

function Figure({ name, value, note, to, error, bad, children }: { name: string; value?: string; note: string; to: string; error: unknown; bad?: boolean; children?: ReactNode }) {
  return (
    <Paper withBorder p="sm" component="section" aria-label={name}>
      <Go to={to}>{name}</Go>
      <Text fz={26} fw={650} lh={1.25} c={bad ? "red" : undefined}>
        {value ?? (error ? "?" : "…")}
      </Text>
      <Text size="xs" c="dimmed">
        {error instanceof Error ? error.message : note}
      </Text>
      {children}
    </Paper>
  );
}

function Executions({ lines }: { lines: UsageLine[] }) {
  const times = useMemo(() => Array.from({ length: days }, (_, i) => Date.parse(day(days - 1 - i)) / 1000), []);
  const values = useMemo(() => [times.map((t) => lines.filter((l) => Date.parse(l.day) / 1000 === t).reduce((n, l) => n + l.executions, 0))], [times, lines]);
  return (
    <Suspense>
      <Chart title={`Executions by day, last ${days} days`} times={times} values={values} format={(n) => String(Math.round(n))} height={130} dots />
    </Suspense>
  );
}

function Failures({ rows, seen }: { rows: Operation[]; seen: number }) {
  return (
    <Rows head={["Result", "What", "When", "Sandbox"]} empty={seen ? `None of the last ${seen} executions failed.` : "Nothing has run yet."}>
      {rows.map((o) => (
        <Table.Tr key={o.seq}>
          <Table.Td>
            <State value={o.status} says={o.says} />
          </Table.Td>
          <Table.Td style={{ overflowWrap: "anywhere" }}>
            {kindOf(o)}: {whatOf(o).slice(0, 80)}
          </Table.Td>
          <Table.Td>
            <Ago at={o.time} />
          </Table.Td>
          <Table.Td>{o.op !== "run" && o.detail.name ? <Go to={`/sandboxes/${encodeURIComponent(o.detail.name)}`}>{o.detail.name}</Go> : "one-shot"}</Table.Td>
        </Table.Tr>
      ))}
    </Rows>
  );
}
