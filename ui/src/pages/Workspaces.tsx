import { Anchor, Badge, Button, Group, Modal, Stack, Table, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import { may, type Whoami, type Workspace } from "../nouns";
import { Ago, bytes, Command, Empty, Fetched, Heading, Rows, Sure, useDo, when } from "../parts";
import { type Column, List } from "../table";
import type * as wire from "../wire";

export default function Workspaces({ who }: { who: Whoami }) {
  const writable = may(who, "member");
  const list = useQuery({ queryKey: ["workspaces"], queryFn: ({ signal }) => get<wire.Workspaces>("/v1/workspaces", signal) });
  const [shown, setShown] = useState<string>();
  const [name, setName] = useState("");
  const create = useDo(() => call("POST", "/v1/workspaces", { name } satisfies wire.WorkspaceRequest), () => setName(""));
  const remove = useDo((n: string) => call("DELETE", `/v1/workspaces/${path(n)}`), "The workspace was removed");
  const columns: Column<Workspace>[] = [
    {
      title: "Name",
      sort: (w) => w.name,
      cell: (w) => (
        <Anchor component="button" size="sm" onClick={() => setShown(w.name)}>
          {w.name}
        </Anchor>
      ),
    },
    { title: "Store", cell: (w) => w.store, sort: (w) => w.store, wide: true },
    { title: "Newest version", cell: (w) => w.head?.number ?? "none", sort: (w) => w.head?.number ?? 0, wide: true, right: true },
    { title: "Files", cell: (w) => w.head?.files, sort: (w) => w.head?.files ?? 0, wide: true, right: true },
    { title: "Size", cell: (w) => w.head && bytes(w.head.size), sort: (w) => w.head?.size ?? 0, right: true },
    { title: "Created", cell: (w) => <Ago at={w.created} />, sort: (w) => w.created, wide: true },
    { title: "Actions", right: true, cell: (w) => writable && <Sure label="Remove" question={`Remove ${w.name} with all of its versions?`} onYes={() => remove.mutate(w.name)} /> },
  ];
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
          <List
            name="workspaces"
            rows={workspaces}
            id={(w) => w.name}
            columns={columns}
            text={(w) => `${w.name} ${w.store}`}
            empty={<Empty next={<Command>{"brig workspace create data\nbrig run --workspace data:direct -c 'open(\"out.txt\", \"w\").write(\"hi\")'"}</Command>}>There are no workspaces.</Empty>}
          />
        )}
      </Fetched>
      {shown && <Versions name={shown} writable={writable} onClose={() => setShown(undefined)} />}
    </>
  );
}

function Versions({ name, writable, onClose }: { name: string; writable: boolean; onClose: () => void }) {
  const base = `/v1/workspaces/${path(name)}`;
  const list = useQuery({ queryKey: ["versions", name], queryFn: ({ signal }) => get<wire.WorkspaceVersions>(`${base}/versions`, signal) });
  const [between, setBetween] = useState<[number, number]>();
  const restore = useDo((version: number) => call("POST", `${base}/restore`, { version } satisfies wire.RestoreRequest), "It was restored as a new version");
  return (
    <Modal opened onClose={onClose} title={name} size="xl">
      <Stack>
        <Fetched query={list}>
          {({ versions }) => (
            <Rows head={["Version", "Files", "Size", "Created", "By", ""]} empty="Nothing was written yet.">
              {versions.map((v, i) => (
                <Table.Tr key={v.number}>
                  <Table.Td title={v.digest}>
                    {v.number} {v.restored && <Badge size="xs" variant="light" tt="none">restored from {v.restored}</Badge>}
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
  const diff = useQuery({ queryKey: ["diff", base, from, to], queryFn: ({ signal }) => get<wire.WorkspaceDiff>(`${base}/diff?from=${from}&to=${to}`, signal), refetchInterval: false });
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
