import { Anchor, Badge, Button, Group, Modal, Stack, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import { may, type Whoami } from "../nouns";
import { bytes, Fetched, Heading, Rows, Sure, useDo, when } from "../parts";

interface Version {
  number: number;
  digest: string;
  files: number;
  size: number;
  created: string;
  actor: string;
  restored?: number;
}

interface Workspace {
  name: string;
  store: string;
  created: string;
  head?: Version;
}

interface Change {
  path: string;
  kind: string;
  type: string;
  size: number;
}

export default function Workspaces({ who }: { who: Whoami }) {
  const writable = may(who, "member");
  const list = useQuery({ queryKey: ["workspaces"], queryFn: ({ signal }) => get<{ workspaces: Workspace[] }>("/v1/workspaces", signal) });
  const [shown, setShown] = useState<string>();
  const [name, setName] = useState("");
  const create = useDo(() => call("POST", "/v1/workspaces", { name }), () => setName(""));
  const remove = useDo((n: string) => call("DELETE", `/v1/workspaces/${path(n)}`), "The workspace was removed");
  return (
    <>
      <Heading title="Workspaces">
        {writable && (
          <form
            onSubmit={(e) => {
              e.preventDefault();
              create.mutate();
            }}
          >
            <Group gap="xs">
              <TextInput aria-label="Name" placeholder="name" value={name} onChange={(e) => setName(e.currentTarget.value)} required />
              <Button type="submit" loading={create.isPending}>
                Create
              </Button>
            </Group>
          </form>
        )}
      </Heading>
      <Fetched query={list}>
        {({ workspaces }) => (
          <Rows head={["Name", "Store", "Newest version", "Files", "Size", "Created", ""]} empty="There are no workspaces.">
            {workspaces.map((w) => (
              <Table.Tr key={w.name}>
                <Table.Td>
                  <Anchor component="button" onClick={() => setShown(w.name)}>
                    {w.name}
                  </Anchor>
                </Table.Td>
                <Table.Td>{w.store}</Table.Td>
                <Table.Td>{w.head?.number ?? "none"}</Table.Td>
                <Table.Td>{w.head?.files}</Table.Td>
                <Table.Td>{w.head && bytes(w.head.size)}</Table.Td>
                <Table.Td>{when(w.created)}</Table.Td>
                <Table.Td ta="right">{writable && <Sure label="Remove" question={`Forget ${w.name} with all of its versions?`} onYes={() => remove.mutate(w.name)} />}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
      {shown && <Versions name={shown} writable={writable} onClose={() => setShown(undefined)} />}
    </>
  );
}

function Versions({ name, writable, onClose }: { name: string; writable: boolean; onClose: () => void }) {
  const base = `/v1/workspaces/${path(name)}`;
  const list = useQuery({ queryKey: ["versions", name], queryFn: ({ signal }) => get<{ versions: Version[] }>(`${base}/versions`, signal) });
  const [between, setBetween] = useState<[number, number]>();
  const restore = useDo((version: number) => call("POST", `${base}/restore`, { version }), "It was restored as a new version");
  return (
    <Modal opened onClose={onClose} title={name} size="xl">
      <Stack>
        <Fetched query={list}>
          {({ versions }) => (
            <Rows head={["Version", "Files", "Size", "Created", "By", ""]} empty="Nothing was written yet.">
              {versions.map((v, i) => (
                <Table.Tr key={v.number}>
                  <Table.Td title={v.digest}>
                    {v.number} {v.restored && <Badge size="xs">{v.restored} again</Badge>}
                  </Table.Td>
                  <Table.Td>{v.files}</Table.Td>
                  <Table.Td>{bytes(v.size)}</Table.Td>
                  <Table.Td>{when(v.created)}</Table.Td>
                  <Table.Td>{v.actor}</Table.Td>
                  <Table.Td>
                    <Group gap="xs" justify="flex-end" wrap="nowrap">
                      {i + 1 < versions.length && (
                        <Button size="compact-sm" variant="light" onClick={() => setBetween([versions[i + 1]!.number, v.number])}>
                          Changes
                        </Button>
                      )}
                      {writable && i > 0 && <Sure label="Restore" question={`Make a new version with what was in version ${v.number}?`} onYes={() => restore.mutate(v.number)} />}
                    </Group>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Rows>
          )}
        </Fetched>
        {between && <Changes base={base} from={between[0]} to={between[1]} />}
      </Stack>
    </Modal>
  );
}

function Changes({ base, from, to }: { base: string; from: number; to: number }) {
  const diff = useQuery({ queryKey: ["diff", base, from, to], queryFn: ({ signal }) => get<{ changes: Change[] }>(`${base}/diff?from=${from}&to=${to}`, signal), refetchInterval: false });
  return (
    <>
      <Text fw={600}>
        From version {from} to {to}
      </Text>
      <Fetched query={diff}>
        {({ changes }) => (
          <Rows head={["Path", "What", "Size"]} empty="They are the same.">
            {changes.map((c) => (
              <Table.Tr key={c.path}>
                <Table.Td>{c.path}</Table.Td>
                <Table.Td>{c.kind}</Table.Td>
                <Table.Td>{c.type === "file" && bytes(c.size)}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}
