import { Badge, Button, Group, Modal, Paper, Stack, Table, TagsInput, Text, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";
import { call } from "../../api";
import type { EgressRule, Sandbox } from "../../nouns";
import { bytes, Empty, Enforced, Rows, useDo } from "../../parts";
import { rule } from "./Create";
import type * as wire from "../../wire";

const simple = (r: EgressRule) => !r.deny && !r.methods?.length && !r.paths?.length && (r.ports?.length ?? 0) < 2;
const short = (r: EgressRule) => {
  const port = r.ports?.length ? `:${r.ports[0]}` : "";
  return r.cidr?.includes(":") ? `[${r.cidr}]${port}` : `${r.host ?? r.cidr}${port}`;
};

/** Policy shows the limits and rules of a sandbox, and how they are enforced. */
export function Policy({ base, sandbox: s, writable }: { base: string; sandbox: Sandbox; writable: boolean }) {
  const rules = s.egress?.rules ?? [];
  const attest = useDo(() => call("POST", `${base}/attest`), "The enforcement was verified on this sandbox");
  const l = s.limits ?? {};
  const limits: [string, string | number | undefined][] = [
    ["Memory", l.memory && bytes(l.memory)],
    ["Processors", l.cpus],
    ["Processes", l.processes],
    ["Disk", l.disk && bytes(l.disk)],
    ["Open files", l.open_files],
    ["Output of a command", l.output && bytes(l.output)],
    ["Bandwidth", s.egress?.bandwidth && `${bytes(s.egress.bandwidth)}/s`],
  ];
  return (
    <Stack>
      <Paper withBorder p="md">
        <Group justify="space-between" mb="xs">
          <Title order={2}>Network</Title>
          {writable && rules.every(simple) && <Change base={base} rules={rules} />}
        </Group>
        <Rows head={["Rule", "To", "Ports", "Requests"]} empty="It has no network access.">
          {rules.map((r, i) => (
            <Table.Tr key={i}>
              <Table.Td>
                <Badge variant="light" tt="none" color={r.deny ? "red" : "green"}>
                  {r.deny ? "deny" : "allow"}
                </Badge>
              </Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{r.host ?? r.cidr}</Table.Td>
              <Table.Td>{r.ports?.join(", ") || "all"}</Table.Td>
              <Table.Td>{[r.methods?.join(", "), r.paths?.join(", ")].filter(Boolean).join(" ") || "all"}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
        {rules.length > 0 && (
          <Text size="xs" c="dimmed" mt="xs">
            The first rule that matches decides. Everything else is denied.
          </Text>
        )}
      </Paper>
      <Paper withBorder p="md">
        <Title order={2} mb="xs">
          Limits
        </Title>
        <Table withRowBorders={false} verticalSpacing={3}>
          <Table.Tbody>
            {limits
              .filter(([, v]) => v)
              .map(([k, v]) => (
                <Table.Tr key={k}>
                  <Table.Td c="dimmed" w={160}>
                    {k}
                  </Table.Td>
                  <Table.Td>{v}</Table.Td>
                </Table.Tr>
              ))}
          </Table.Tbody>
        </Table>
      </Paper>
      <Paper withBorder p="md">
        <Title order={2} mb="xs">
          Secrets
        </Title>
        <Rows head={["Secret", "Variable"]} empty="It was given no secrets.">
          {(s.secrets ?? []).map((u) => (
            <Table.Tr key={u.name}>
              <Table.Td>{u.name}</Table.Td>
              <Table.Td>{u.env ?? u.name.toUpperCase().replaceAll("-", "_")}</Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      </Paper>
      <Paper withBorder p="md">
        <Group justify="space-between" mb="xs">
          <Title order={2}>Enforcement</Title>
          {writable && (
            <Button size="compact-sm" variant="default" loading={attest.isPending} onClick={() => attest.mutate()}>
              Verify now
            </Button>
          )}
        </Group>
        {s.enforcement ? <Enforced areas={s.enforcement} /> : <Empty>It was not verified yet for this image.</Empty>}
      </Paper>
    </Stack>
  );
}

function Change({ base, rules }: { base: string; rules: EgressRule[] }) {
  const [open, { open: show, close }] = useDisclosure();
  const [hosts, setHosts] = useState<string[]>([]);
  const save = useDo(() => call("PUT", `${base}/egress`, { rules: hosts.map(rule) } satisfies wire.EgressChange), close as () => void);
  return (
    <>
      <Button
        size="compact-sm"
        variant="default"
        onClick={() => {
          setHosts(rules.map(short));
          show();
        }}
      >
        Change
      </Button>
      <Modal opened={open} onClose={close} title="Change the network rules">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            save.mutate();
          }}
        >
          <Stack>
            <TagsInput label="Allowed hosts" description="A name, *.name or a network, with :port for one port. Connections that are no longer allowed are closed" placeholder="api.example.com:443" value={hosts} onChange={setHosts} data-autofocus />
            <Button type="submit" loading={save.isPending}>
              Save
            </Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
