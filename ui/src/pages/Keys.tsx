import { Alert, Button, Code, CopyButton, Group, Modal, NumberInput, Select, Stack, Table, TagsInput, Text, TextInput, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import type { Whoami } from "../nouns";
import { Fetched, Heading, Rows, Sure, useDo, when } from "../parts";

interface Key {
  id: string;
  name: string;
  role: string;
  scopes?: string[];
  kind?: string;
  prefix?: string;
  created?: string;
  expires?: string;
  last_used?: string;
}

interface Session {
  id: string;
  name: string;
  role: string;
  email?: string;
  created: string;
  last_used: string;
}

export default function Keys({ who }: { who: Whoami }) {
  const list = useQuery({ queryKey: ["keys"], queryFn: ({ signal }) => get<{ keys: Key[] }>("/v1/keys", signal) });
  const sessions = useQuery({ queryKey: ["sessions"], queryFn: ({ signal }) => get<{ sessions: Session[] }>("/v1/auth/sessions", signal) });
  const revoke = useDo((id: string) => call("DELETE", `/v1/keys/${path(id)}`), "The key was revoked");
  const end = useDo((id: string) => call("DELETE", `/v1/auth/sessions/${path(id)}`), "The session was ended");
  return (
    <>
      <Heading title="Keys">
        <Create who={who} />
      </Heading>
      <Fetched query={list}>
        {({ keys }) => (
          <Rows head={["Name", "Begins with", "Role", "Scopes", "Last used", "Ends", ""]} empty="There are no keys.">
            {keys.map((k) => (
              <Table.Tr key={k.id}>
                <Table.Td>{k.name}</Table.Td>
                <Table.Td>
                  <Code>{k.prefix}…</Code>
                </Table.Td>
                <Table.Td>{k.role}</Table.Td>
                <Table.Td>{k.scopes?.join(", ") || "all"}</Table.Td>
                <Table.Td>{when(k.last_used)}</Table.Td>
                <Table.Td>{when(k.expires) || "when it is revoked"}</Table.Td>
                <Table.Td ta="right">
                  <Sure label="Revoke" question={`Revoke ${k.name}? What goes on with it ends.`} onYes={() => revoke.mutate(k.id)} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
      <Title order={3} my="md">
        Sessions
      </Title>
      <Fetched query={sessions}>
        {({ sessions }) => (
          <Rows head={["Who", "Role", "Begun", "Last used", ""]} empty="There are no sessions.">
            {sessions.map((s) => (
              <Table.Tr key={s.id}>
                <Table.Td>{s.email || s.name}</Table.Td>
                <Table.Td>{s.role}</Table.Td>
                <Table.Td>{when(s.created)}</Table.Td>
                <Table.Td>{when(s.last_used)}</Table.Td>
                <Table.Td ta="right">
                  <Sure label="End" question="End this session?" onYes={() => end.mutate(s.id)} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}

function Create({ who }: { who: Whoami }) {
  const [open, { open: show, close }] = useDisclosure();
  const [name, setName] = useState("");
  const [role, setRole] = useState("member");
  const [kind, setKind] = useState("brig");
  const [scopes, setScopes] = useState<string[]>([]);
  const [days, setDays] = useState<number | string>(90);
  const [secret, setSecret] = useState("");
  const create = useDo(
    () => call<{ key: string }>("POST", "/v1/keys", { name, role, kind, scopes, ttl_ms: Number(days) * 86_400_000 || undefined }),
    (k) => setSecret(k.key),
  );
  const done = () => {
    setSecret("");
    close();
  };
  const roles = ["viewer", "member", "admin", "operator"];
  return (
    <>
      <Button onClick={show}>Make a key</Button>
      <Modal opened={open} onClose={done} title="Make a key">
        {secret ? (
          <Stack>
            <Alert color="yellow">This is the only time that the key is shown.</Alert>
            <Code block>{secret}</Code>
            <Group justify="flex-end">
              <CopyButton value={secret}>{({ copied, copy }) => <Button onClick={copy}>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
              <Button variant="default" onClick={done}>
                Done
              </Button>
            </Group>
          </Stack>
        ) : (
          <form
            onSubmit={(e) => {
              e.preventDefault();
              create.mutate();
            }}
          >
            <Stack>
              <TextInput label="Name" description="Whose it is, or what for" value={name} onChange={(e) => setName(e.currentTarget.value)} required data-autofocus />
              <Select label="Role" data={roles.slice(0, roles.indexOf(who.role) + 1)} value={role} allowDeselect={false} onChange={(v) => setRole(v!)} />
              <Select label="For" data={[{ value: "brig", label: "Brig's clients" }, { value: "e2b", label: "E2B's clients" }]} value={kind} allowDeselect={false} onChange={(v) => setKind(v!)} />
              <TagsInput label="Scopes" description="Beginnings of operations, for example file.read; none is all" value={scopes} onChange={setScopes} />
              <NumberInput label="Days" description="0 is until it is revoked" min={0} value={days} onChange={setDays} />
              <Text size="xs" c="dimmed">
                Nobody makes a key with more than their own rights.
              </Text>
              <Button type="submit" loading={create.isPending}>
                Make it
              </Button>
            </Stack>
          </form>
        )}
      </Modal>
    </>
  );
}
