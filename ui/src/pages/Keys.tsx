import { Alert, Badge, Button, Code, CopyButton, Group, Modal, NumberInput, Select, Stack, Table, TagsInput, Text, TextInput, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import type { Key, Role, Whoami } from "../nouns";
import { Ago, Command, Empty, Fetched, Heading, Rows, Sure, useDo, when } from "../parts";
import { type Column, List } from "../table";
import { ago, until } from "../time";
import type * as wire from "../wire";

export default function Keys({ who }: { who: Whoami }) {
  const list = useQuery({ queryKey: ["keys"], queryFn: ({ signal }) => get<wire.Keys>("/v1/keys", signal) });
  const sessions = useQuery({ queryKey: ["sessions"], queryFn: ({ signal }) => get<wire.Sessions>("/v1/auth/sessions", signal) });
  const revoke = useDo((k: Key) => call("DELETE", `/v1/keys/${path(k.id)}`), "The key was revoked");
  const end = useDo((id: string) => call("DELETE", `/v1/auth/sessions/${path(id)}`), "The session was ended");
  const all = sessions.data?.sessions ?? [];
  const mine = who.key_id ?? all.find((s) => s.id === who.session_id)?.key_id; // the key that this session began with
  const columns: Column<Key>[] = [
    {
      title: "Name",
      sort: (k) => k.name,
      cell: (k) => (
        <Group gap={6}>
          <Text size="sm" style={{ overflowWrap: "anywhere" }}>
            {k.name}
          </Text>
          {k.id === mine && (
            <Badge size="sm" variant="light" tt="none">
              in use here
            </Badge>
          )}
        </Group>
      ),
    },
    { title: "Starts with", cell: (k) => k.prefix && <Code>{k.prefix}…</Code>, wide: true },
    { title: "Role", cell: (k) => k.role, sort: (k) => k.role },
    { title: "For", cell: (k) => (k.kind === "e2b" ? "E2B" : "Brig"), sort: (k) => k.kind ?? "", wide: true },
    { title: "Scopes", cell: (k) => k.scopes?.join(", ") || "all", wide: true },
    { title: "Last used", cell: (k) => (k.last_used ? <Ago at={k.last_used} /> : "never"), sort: (k) => k.last_used ?? "", wide: true },
    { title: "Expires", cell: (k) => (k.expires ? <span title={when(k.expires)}>{until(k.expires)}</span> : "never"), sort: (k) => k.expires ?? "9", wide: true },
    { title: "Actions", right: true, cell: (k) => <Revoke of={k} mine={k.id === mine} sessions={all.filter((s) => s.key_id === k.id).length} onYes={() => revoke.mutate(k)} /> },
  ];
  return (
    <>
      <Heading title="Keys">
        <Create who={who} />
      </Heading>
      <Fetched query={list}>
        {({ keys }) => (
          <List
            name="keys"
            rows={keys}
            id={(k) => k.id}
            columns={columns}
            text={(k) => `${k.name} ${k.role} ${k.prefix ?? ""} ${k.scopes?.join(" ") ?? ""}`}
            filters={[{ name: "Role", of: (k) => k.role }]}
            empty={<Empty next={<Command>brig key create my-agent --role member</Command>}>There are no keys. A program needs one to use the API.</Empty>}
          />
        )}
      </Fetched>
      <Title order={2} my="md">
        Sessions
      </Title>
      <Fetched query={sessions}>
        {({ sessions }) => (
          <Rows head={["Who", "Role", "Started", "Last used", ""]} empty="There are no sessions.">
            {sessions.map((s) => (
              <Table.Tr key={s.id}>
                <Table.Td>
                  {s.email || s.name}{" "}
                  {s.id === who.session_id && (
                    <Badge size="sm" variant="light" tt="none">
                      this one
                    </Badge>
                  )}
                </Table.Td>
                <Table.Td>{s.role}</Table.Td>
                <Table.Td>
                  <Ago at={s.created} />
                </Table.Td>
                <Table.Td>
                  <Ago at={s.last_used} />
                </Table.Td>
                <Table.Td ta="right">
                  <Sure label="End" question={s.id === who.session_id ? "End this session? You will be signed out." : `End the session of ${s.email || s.name}?`} onYes={() => end.mutate(s.id)} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}

/** Revoke revokes a key after a confirmation, and warns if this page uses the key. */
function Revoke({ of: k, mine, sessions, onYes }: { of: Key; mine: boolean; sessions: number; onYes: () => void }) {
  const used = k.last_used ? `It was last used ${ago(k.last_used)}.` : "It was never used.";
  return (
    <Sure
      label="Revoke"
      type={mine ? k.name : undefined}
      onYes={onYes}
      question={
        <Stack gap="xs">
          {mine && (
            <Alert color="red" title="You are signed in with this key">
              Revoking it signs you out at once. Without another key of the role {k.role}, you cannot sign in again.
            </Alert>
          )}
          <Text size="sm">
            Revoke {k.name}? {used} Requests and {sessions === 1 ? "the session" : `the ${sessions} sessions`} that use it end. This cannot be undone.
          </Text>
        </Stack>
      }
    />
  );
}

function Create({ who }: { who: Whoami }) {
  const [open, { open: show, close }] = useDisclosure();
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("member");
  const [kind, setKind] = useState<wire.KeyRequest["kind"]>("brig");
  const [scopes, setScopes] = useState<string[]>([]);
  const [days, setDays] = useState<number | string>(90);
  const [secret, setSecret] = useState("");
  const create = useDo(
    () => call<wire.NewKey>("POST", "/v1/keys", { name, role, kind, scopes, ttl_ms: Number(days) * 86_400_000 || undefined } satisfies wire.KeyRequest),
    (k) => setSecret(k.key),
  );
  const done = () => {
    setSecret("");
    close();
  };
  const roles: Role[] = ["viewer", "member", "admin", "operator"];
  return (
    <>
      <Button onClick={show}>Create a key</Button>
      <Modal opened={open} onClose={done} title="Create a key">
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
              <TextInput label="Name" description="The program or the person that uses it" value={name} onChange={(e) => setName(e.currentTarget.value)} required data-autofocus />
              <Select label="Role" data={roles.slice(0, roles.indexOf(who.role) + 1)} value={role} allowDeselect={false} onChange={(v) => setRole(v!)} />
              <Select label="For" data={[{ value: "brig", label: "Brig's clients" }, { value: "e2b", label: "E2B's clients" }]} value={kind} allowDeselect={false} onChange={(v) => setKind(v!)} />
              <TagsInput label="Scopes" description="Operations or groups of them, for example file.read or sandbox.; empty allows all" value={scopes} onChange={setScopes} />
              <NumberInput label="Days until it expires" description="0 means never" min={0} value={days} onChange={setDays} />
              <Text size="xs" c="dimmed">
                A key cannot have more rights than you have.
              </Text>
              <Button type="submit" loading={create.isPending}>
                Create
              </Button>
            </Stack>
          </form>
        )}
      </Modal>
    </>
  );
}
