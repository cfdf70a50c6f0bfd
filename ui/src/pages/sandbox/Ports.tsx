import { Anchor, Button, Code, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { call } from "../../api";
import type { Sandbox } from "../../nouns";
import { Command, Fetched, Rows } from "../../parts";
import type * as wire from "../../wire";

interface Listener {
  port: number;
  address: string;
}

/** listeners reads the kernel's tables of TCP sockets, as /proc/net shows them. */
export function listeners(tables: string): Listener[] {
  const found = new Map<number, string>();
  for (const line of tables.split("\n")) {
    const [, local, , state] = line.trim().split(/\s+/);
    const [address, port] = (local ?? "").split(":");
    if (state !== "0A" || !address || !port) continue;
    const anywhere = /^0+$/.test(address);
    const n = parseInt(port, 16);
    if (!found.has(n) || anywhere) found.set(n, anywhere ? "all addresses" : "its loopback address");
  }
  return [...found].map(([port, address]) => ({ port, address })).sort((a, b) => a.port - b.port);
}

/** Ports shows the open ports of a sandbox, and how to connect to them. */
export function Ports({ base, sandbox: s }: { base: string; sandbox: Sandbox }) {
  // The query runs a command in the sandbox, so it runs once, and again when the user refreshes it.
  const q = useQuery({
    queryKey: ["ports", base],
    refetchInterval: false,
    refetchOnWindowFocus: false,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: async ({ signal }) => {
      const { stdout } = await call<wire.Result>("POST", `${base}/exec`, { shell: "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null", timeout_ms: 10_000 } satisfies wire.ExecRequest, signal);
      return { ports: listeners(stdout), address: await loopback(s.id) };
    },
  });
  return (
    <Stack>
      <Button size="compact-sm" variant="default" onClick={() => q.refetch()} loading={q.isFetching} style={{ alignSelf: "flex-end" }}>
        Look again
      </Button>
      <Fetched query={q}>
        {({ ports }) => (
          <Rows
            head={["Port", "Listens on", "Connect from your machine", "Then open"]}
            empty="No program listens on a TCP port."
            next={
              <>
                <Text size="sm" ta="center">
                  Start a server on the tab Processes, for example python3 -m http.server 8000, then look again.
                </Text>
                <Command>{`brig sandbox forward ${s.name} 8000`}</Command>
              </>
            }
          >
            {ports.map((p) => (
              <Table.Tr key={p.port}>
                <Table.Td>{p.port}</Table.Td>
                <Table.Td>{p.address}</Table.Td>
                <Table.Td>
                  <Code>{`brig sandbox forward ${s.name} ${p.port}`}</Code>
                </Table.Td>
                <Table.Td>
                  {q.data?.address ? (
                    <Anchor size="sm" href={`http://${q.data.address}:${p.port}/`} target="_blank" rel="noreferrer">
                      {q.data.address}:{p.port}
                    </Anchor>
                  ) : (
                    "the address that it prints"
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
      {q.data && q.data.ports.length > 0 && (
        <Text size="xs" c="dimmed">
          The link works on the machine where <Code>brig sandbox forward</Code> runs. Each sandbox has a loopback address of its own there, so that it does not receive the cookies of this console.
        </Text>
      )}
    </Stack>
  );
}

/** loopback is the address on which brig sandbox forward listens for a sandbox; see
 * loopbackOf in cmd/brig. Browsers compute hashes on https and localhost only. */
async function loopback(id: string): Promise<string | undefined> {
  if (!globalThis.crypto?.subtle) return undefined;
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`forward:${id}`)));
  return `127.${1 + (sum[0]! % 254)}.${sum[1]}.${1 + (sum[2]! % 254)}`;
}
