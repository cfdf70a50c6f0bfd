import { Alert, Badge, Button, Code, Group, Table, Text, TextInput } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, path } from "../api";
import type { AuditLine, Whoami } from "../nouns";
import { Fetched, Heading, Rows, when } from "../parts";
import { type Verdict, verify } from "../verify";

interface Page {
  lines: AuditLine[];
  next: number;
  head: { tenant: string; seq: number; hash: string };
}

/** Audit is the tenant's log: what was done, by whom, and that it is whole. */
export default function Audit({ who }: { who: Whoami }) {
  const [sandbox, setSandbox] = useState("");
  const [filter, setFilter] = useState("");
  const [verdict, setVerdict] = useState<Verdict>();
  const [busy, setBusy] = useState(false);
  const log = useInfiniteQuery({
    queryKey: ["audit", sandbox],
    initialPageParam: 0,
    queryFn: ({ pageParam, signal }) => get<Page>(`/v1/audit?limit=200&after=${pageParam}${sandbox ? `&sandbox=${path(sandbox)}` : ""}`, signal),
    getNextPageParam: (p) => p.next || undefined,
    refetchInterval: false,
  });
  const check = async () => {
    setBusy(true);
    setVerdict(await verify());
    setBusy(false);
  };
  const fits = (l: AuditLine) => !filter || `${l.op} ${l.actor} ${l.phase} ${l.kind ?? ""} ${l.sandbox ?? ""} ${JSON.stringify(l.detail ?? {})}`.toLowerCase().includes(filter.toLowerCase());
  return (
    <>
      <Heading title="Audit">
        <TextInput aria-label="Filter" placeholder="filter" value={filter} onChange={(e) => setFilter(e.currentTarget.value)} />
        <TextInput aria-label="Sandbox id" placeholder="sandbox id" value={sandbox} onChange={(e) => setSandbox(e.currentTarget.value.trim())} />
        <Button variant="light" onClick={check} loading={busy}>
          Verify
        </Button>
      </Heading>
      {verdict && (
        <Alert color={verdict.ok ? "green" : "red"} mb="md" data-testid="verdict">
          {verdict.message}
        </Alert>
      )}
      <Fetched query={log}>
        {({ pages }) => (
          <>
            <Rows head={["#", "Time", "Who", "What", "", "Sandbox", "Detail"]} empty={`Nothing is on record for ${who.tenant}.`}>
              {pages
                .flatMap((p) => p.lines)
                .filter(fits)
                .map((l) => (
                  <Table.Tr key={l.seq}>
                    <Table.Td title={l.hash}>{l.seq}</Table.Td>
                    <Table.Td>{when(l.time)}</Table.Td>
                    <Table.Td>{l.actor}</Table.Td>
                    <Table.Td>{l.op}</Table.Td>
                    <Table.Td>
                      <Badge variant="light" miw="max-content" color={l.phase === "refused" || l.kind ? "red" : "gray"}>
                        {l.kind ? `${l.phase}: ${l.kind}` : l.phase}
                      </Badge>
                    </Table.Td>
                    <Table.Td>{l.sandbox && <Code title={l.sandbox}>{l.sandbox.slice(0, 12)}</Code>}</Table.Td>
                    <Table.Td>
                      <Text size="xs" style={{ overflowWrap: "anywhere" }}>{Object.entries(l.detail ?? {}).map(([k, v]) => `${k}=${v}`).join(" ")}</Text>
                    </Table.Td>
                  </Table.Tr>
                ))}
            </Rows>
            {log.hasNextPage && (
              <Group justify="center" mt="md">
                <Button variant="default" onClick={() => log.fetchNextPage()} loading={log.isFetchingNextPage}>
                  More
                </Button>
              </Group>
            )}
          </>
        )}
      </Fetched>
    </>
  );
}
