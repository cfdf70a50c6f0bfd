import { Alert, Badge, Group, Paper, SimpleGrid, Stack, Table, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { ApiError, get, path } from "../../api";
import type { Measured, Sandbox } from "../../nouns";
import { Ago, bytes, Go, Problem } from "../../parts";

const Chart = lazy(() => import("../../Chart").then((m) => ({ default: m.Chart })));

/** Summary shows the properties and the resource usage of a sandbox. */
export function Summary({ sandbox: s, base }: { sandbox: Sandbox; base: string }) {
  const l = s.limits ?? {};
  const facts: [string, React.ReactNode][] = [
    ["ID", s.id],
    ["Image", `${s.image} (${s.digest.slice(0, 26)})`],
    ["Template", s.template],
    ["Provider", s.route ? `${s.provider} (${s.route.reason})` : s.provider],
    ["Created", <Ago key="created" at={s.created} />],
    ["Forked from", s.origin && <Go key="origin" to={`/sandboxes/${path(s.origin)}`}>{s.origin}</Go>],
    ["Ended", s.exit && <span key="ended"><Ago at={s.ended} />: {s.exit.reason.replaceAll("_", " ")}, exit code {s.exit.code}</span>],
    ["Limits", [l.memory && `${bytes(l.memory)} memory`, l.cpus && `${l.cpus} CPU`, l.processes && `${l.processes} processes`, l.disk && `${bytes(l.disk)} disk`].filter(Boolean).join(", ")],
    ["Workspace", s.workspace && `${s.workspace.name} (${s.workspace.mode ?? "overlay"})`],
  ];
  const labels = Object.entries(s.labels ?? {});
  return (
    <Stack>
      {s.exit && ["out_of_memory", "crashed", "agent_lost", "over_quota"].includes(s.exit.reason) && (
        <Alert color="red" title={`Ended: ${s.exit.reason.replaceAll("_", " ")}`}>
          {advice[s.exit.reason]}
        </Alert>
      )}
      {s.state === "running" && <Live key={s.id} sandbox={s} base={base} />}
      <Paper withBorder p="xs">
        <Table withRowBorders={false} verticalSpacing={4}>
          <Table.Tbody>
            {facts
              .filter(([, v]) => v)
              .map(([k, v]) => (
                <Table.Tr key={k}>
                  <Table.Td w={110} c="dimmed">
                    {k}
                  </Table.Td>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>{v}</Table.Td>
                </Table.Tr>
              ))}
            {labels.length > 0 && (
              <Table.Tr>
                <Table.Td c="dimmed">Labels</Table.Td>
                <Table.Td>
                  <Group gap={4}>
                    {labels.map(([k, v]) => (
                      <Badge key={k} variant="default" tt="none" maw="100%">
                        {k}={v}
                      </Badge>
                    ))}
                  </Group>
                </Table.Td>
              </Table.Tr>
            )}
          </Table.Tbody>
        </Table>
      </Paper>
      {s.route?.attempts?.map((a) => (
        <Alert key={a.provider} color="yellow" p="xs">
          {a.provider} was tried before: {a.message} ({a.code})
        </Alert>
      ))}
      {s.notes?.map((n) => (
        <Alert key={n} color="blue" p="xs">
          {n}
        </Alert>
      ))}
    </Stack>
  );
}

const advice: Record<string, string> = {
  out_of_memory: "It used all of its memory. Create it again with a higher memory limit.",
  crashed: "The sandbox failed. Its log may say more.",
  agent_lost: "The agent in the sandbox no longer answered.",
  over_quota: "The tenant's time for the day is used up.",
};

const samples = 150; // five minutes

/** Live shows charts of a sandbox's resource usage since the page was opened. */
function Live({ sandbox: s, base }: { sandbox: Sandbox; base: string }) {
  const client = useQueryClient();
  const key = ["usage", s.id];
  const q = useQuery({
    queryKey: key,
    refetchInterval: 2000,
    structuralSharing: false,
    retry: false,
    queryFn: async ({ signal }) => [...(client.getQueryData<Measured[]>(key) ?? []), await get<Measured>(`${base}/usage`, signal)].slice(-samples),
  });
  const shown = useMemo(() => series(q.data ?? []), [q.data]);
  if (q.error instanceof ApiError && q.error.status === 501)
    return (
      <Text size="sm" c="dimmed">
        Provider {s.provider} does not measure what a sandbox uses.
      </Text>
    );
  if (!q.data) return q.error && !(q.error instanceof ApiError && q.error.status === 409) ? <Problem error={q.error} /> : null;
  const last = q.data[q.data.length - 1]!;
  const end = (v: number[]) => v[v.length - 1] ?? 0;
  const percent = (n: number) => `${n.toFixed(n < 10 ? 1 : 0)} %`;
  const rate = (n: number) => `${bytes(Math.round(n))}/s`;
  return (
    <Suspense>
      <SimpleGrid cols={{ base: 1, sm: 2, xl: 4 }} spacing="sm" data-testid="live">
        <Chart title="CPU" now={shown.times.length ? `${percent(end(shown.cpu))} of ${s.limits?.cpus ?? 1} CPU` : "measuring"} times={shown.times} values={shown.cpuLines} format={percent} most={100} height={130} seconds={120} />
        <Chart title="Memory" now={`${bytes(last.memory)}${s.limits?.memory ? ` of ${bytes(s.limits.memory)}` : ""}`} times={shown.memoryTimes} values={shown.memoryLines} format={bytes} binary most={s.limits?.memory} height={130} seconds={120} />
        {last.disk !== undefined && <Chart title="Disk" now={`${bytes(last.disk)}${s.limits?.disk ? ` of ${bytes(s.limits.disk)}` : ""}`} times={shown.memoryTimes} values={shown.diskLines} format={bytes} binary most={s.limits?.disk} height={130} seconds={120} />}
        <Chart title="Network" now={s.egress?.rules?.length ? undefined : "no egress rules"} names={[`${bytes(last.sent)} sent`, `${bytes(last.received)} received`]} times={shown.times} values={shown.network} format={rate} binary height={130} seconds={120} />
      </SimpleGrid>
    </Suspense>
  );

  function series(all: Measured[]) {
    const seconds = all.map((m) => Date.parse(m.at) / 1000);
    const per = (of: (m: Measured) => number) => all.slice(1).map((m, i) => Math.max(0, (of(m) - of(all[i]!)) / Math.max(0.001, seconds[i + 1]! - seconds[i]!)));
    const cpu = per((m) => m.cpu_ms).map((ms) => Math.min(100, ms / 10 / (s.limits?.cpus || 1)));
    return { times: seconds.slice(1), cpu, cpuLines: [cpu], memoryTimes: seconds, memoryLines: [all.map((m) => m.memory)], diskLines: [all.map((m) => m.disk ?? 0)], network: [per((m) => m.sent), per((m) => m.received)] };
  }
}
