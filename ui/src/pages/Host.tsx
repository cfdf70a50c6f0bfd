import { Badge, Group, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { get } from "../api";
import { bytes, Enforced, Fetched, Heading, Rows, when } from "../parts";
import type * as wire from "../wire";

export default function Host() {
  const pool = useQuery({ queryKey: ["pool"], queryFn: ({ signal }) => get<wire.Pool>("/v1/pool", signal), refetchInterval: 2000 });
  const caps = useQuery({ queryKey: ["capabilities"], queryFn: ({ signal }) => get<wire.Capabilities>("/v1/capabilities", signal) });
  const version = useQuery({ queryKey: ["version"], queryFn: ({ signal }) => get<wire.Version>("/v1/version", signal) });
  return (
    <>
      <Heading title="Pool">
        <Text size="sm" c="dimmed">
          {version.data?.version}
        </Text>
      </Heading>
      <Fetched query={pool}>
        {({ shelves }) => (
          <Rows head={["Image", "Language", "Limits", "Ready", "Starting", "Hits", "Misses", "Failed", "Start time"]} empty="The warm pool is off.">
            {shelves.map((s, i) => (
              <Table.Tr key={i}>
                <Table.Td title={s.image}>{s.image.slice(0, 19)}</Table.Td>
                <Table.Td>{s.language || "none"}</Table.Td>
                <Table.Td>
                  {bytes(s.limits.memory)}, {s.limits.cpus} CPU
                </Table.Td>
                <Table.Td>
                  <Badge color={s.ready === 0 ? "red" : "green"} variant="light">
                    {s.ready} of {s.target}
                  </Badge>
                </Table.Td>
                <Table.Td>{s.making}</Table.Td>
                <Table.Td>{s.hits}</Table.Td>
                <Table.Td>{s.misses}</Table.Td>
                <Table.Td>{s.failed}</Table.Td>
                <Table.Td>{s.refill_ms.toFixed(0)} ms</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
      <Alerts />
      <Group my="md">
        <Title order={2}>Enforcement on this host</Title>
        {caps.data && <Badge variant="light">{caps.data.isolation}</Badge>}
      </Group>
      <Fetched query={caps}>{(c) => <Enforced areas={c.enforces} />}</Fetched>
    </>
  );
}

function Alerts() {
  const alerts = useQuery({ queryKey: ["alerts"], queryFn: ({ signal }) => get<wire.Alerts>("/v1/alerts", signal) });
  return (
    <>
      <Title order={2} my="md">
        Alerts
      </Title>
      <Fetched query={alerts}>
        {({ alerts }) => (
          <Rows head={["Alert", "Severity", "State", "What", "Since"]} empty="No alert is pending or firing.">
            {alerts.map((a) => (
              <Table.Tr key={a.name}>
                <Table.Td>{a.name}</Table.Td>
                <Table.Td>{a.severity}</Table.Td>
                <Table.Td>
                  <Badge variant="light" color={a.state === "firing" ? "red" : a.state === "pending" ? "yellow" : "green"}>{a.state}</Badge>
                </Table.Td>
                <Table.Td>{a.summary}</Table.Td>
                <Table.Td>{when(a.since)}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}
