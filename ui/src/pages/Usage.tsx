import { Group, Select, SimpleGrid, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { get } from "../api";
import { Chart } from "../Chart";
import { may, type UsageLine as Line, type Whoami } from "../nouns";
import { bytes, Fetched, Heading, Rows } from "../parts";
import type * as wire from "../wire";

const day = (back: number) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);

const figures: [string, (l: Line) => number, (n: number) => string][] = [
  ["Executions", (l) => l.executions, (n) => String(n)],
  ["Execution time", (l) => l.execution_ms / 1000, (n) => `${n.toFixed(0)} s`],
  ["Memory reserved", (l) => l.gib_seconds, (n) => `${n.toFixed(0)} GiB s`],
  ["Sent and received", (l) => l.egress_bytes, bytes],
  ["Cost", (l) => l.cost ?? 0, (n) => (n ? n.toFixed(4) : "0")],
];

export default function Usage({ who }: { who: Whoami }) {
  const [days, setDays] = useState("14");
  const [all, setAll] = useState("own");
  const tenant = all === "all" ? "&tenant=*" : "";
  const usage = useQuery({ queryKey: ["usage", days, all], queryFn: ({ signal }) => get<wire.Usage>(`/v1/usage?from=${day(Number(days) - 1)}&to=${day(0)}${tenant}`, signal) });
  return (
    <>
      <Heading title="Usage">
        {may(who, "operator") && <Select aria-label="Whose" data={[{ value: "own", label: who.tenant }, { value: "all", label: "all tenants" }]} value={all} allowDeselect={false} onChange={(v) => setAll(v!)} />}
        <Select aria-label="Days" data={[{ value: "7", label: "7 days" }, { value: "14", label: "14 days" }, { value: "60", label: "60 days" }]} value={days} allowDeselect={false} onChange={(v) => setDays(v!)} />
      </Heading>
      <Fetched query={usage}>{({ usage }) => <Figures lines={usage} days={Number(days)} />}</Fetched>
    </>
  );
}

function Figures({ lines, days }: { lines: Line[]; days: number }) {
  const labels = useMemo(() => Array.from({ length: days }, (_, i) => day(days - 1 - i)), [days]);
  const times = useMemo(() => labels.map((d) => Date.parse(d) / 1000), [labels]);
  const charts = useMemo(
    () => figures.map(([title, of, format]) => ({ title, format, values: [labels.map((d) => lines.filter((l) => l.day === d).reduce((sum, l) => sum + of(l), 0))] })),
    [lines, labels],
  );
  return (
    <>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        {charts.map((c) => (
          <Chart key={c.title} title={c.title} now={c.format(c.values[0]!.reduce((a, b) => a + b, 0))} times={times} values={c.values} format={c.format} dots />
        ))}
      </SimpleGrid>
      <Group mt="md" />
      <Rows head={["Day", "Tenant", ...figures.map(([t]) => t)]} empty="Nothing was used in this time. Usage appears here seconds after a run.">
        {[...lines].reverse().map((l) => (
          <Table.Tr key={l.day + l.tenant}>
            <Table.Td>{l.day}</Table.Td>
            <Table.Td>{l.tenant}</Table.Td>
            {figures.map(([t, of, format]) => (
              <Table.Td key={t}>{format(of(l))}</Table.Td>
            ))}
          </Table.Tr>
        ))}
      </Rows>
    </>
  );
}
