import { ActionIcon, Alert, Anchor, Badge, Button, FileButton, Group, Modal, NumberInput, Stack, Table, Tabs, Text, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { useLocation, useParams } from "wouter";
import { call, get, path, text } from "../api";
import { type Entry, may, type Sandbox, type Whoami } from "../nouns";
import { bytes, Empty, Enforced, Fetched, Heading, Output, Rows, State, Sure, useDo, when } from "../parts";

const Terminal = lazy(() => import("../Terminal").then((m) => ({ default: m.Terminal })));

export default function Sandboxes({ who }: { who: Whoami }) {
  const name = useParams()["*"];
  return name ? <One key={name} name={decodeURIComponent(name)} who={who} /> : <All who={who} />;
}

function All({ who }: { who: Whoami }) {
  const [, go] = useLocation();
  const list = useQuery({
    queryKey: ["sandboxes"],
    queryFn: ({ signal }) => get<{ sandboxes: Sandbox[] }>("/v1/sandboxes?limit=200", signal),
    refetchInterval: 2000,
  });
  return (
    <>
      <Heading title="Sandboxes">{may(who, "member") && <Create />}</Heading>
      <Fetched query={list}>
        {({ sandboxes }) => (
          <Rows head={["Name", "State", "Image", "Provider", "Created", "Expires"]} empty="There are no sandboxes.">
            {sandboxes.map((s) => (
              <Table.Tr key={s.id}>
                <Table.Td>
                  <Anchor
                    href={`/console/sandboxes/${path(s.name)}`}
                    onClick={(e) => {
                      e.preventDefault();
                      go(`/sandboxes/${path(s.name)}`);
                    }}
                  >
                    {s.name}
                  </Anchor>
                </Table.Td>
                <Table.Td>
                  <State value={s.state} />
                </Table.Td>
                <Table.Td>{s.image}</Table.Td>
                <Table.Td title={s.route?.reason}>{s.provider}</Table.Td>
                <Table.Td>{when(s.created)}</Table.Td>
                <Table.Td>{when(s.expires)}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}

function Create() {
  const [open, { open: show, close }] = useDisclosure();
  const [name, setName] = useState("");
  const [image, setImage] = useState("host");
  const [minutes, setMinutes] = useState<number | string>(15);
  const create = useDo(() => call<Sandbox>("POST", "/v1/sandboxes", { name: name || undefined, image, ttl_ms: Number(minutes) * 60_000 }), close as () => void);
  return (
    <>
      <Button onClick={show}>Create</Button>
      <Modal opened={open} onClose={close} title="Create a sandbox">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            create.mutate();
          }}
        >
          <Stack>
            <TextInput label="Name" placeholder="one is picked" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
            <TextInput label="Image" value={image} onChange={(e) => setImage(e.currentTarget.value)} />
            <NumberInput label="Minutes without use until it ends" min={1} value={minutes} onChange={setMinutes} />
            <Button type="submit" loading={create.isPending}>
              Create
            </Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}

function One({ name, who }: { name: string; who: Whoami }) {
  const [, go] = useLocation();
  const base = `/v1/sandboxes/${path(name)}`;
  const query = useQuery({ queryKey: ["sandbox", name], queryFn: ({ signal }) => get<Sandbox>(base, signal), refetchInterval: 2000 });
  const stop = useDo(() => call("POST", `${base}/stop`), `${name} was stopped`);
  const kill = useDo(() => call("POST", `${base}/kill`), `${name} was killed`);
  const remove = useDo(() => call("DELETE", base), () => go("/sandboxes"));
  const member = may(who, "member");
  return (
    <Fetched query={query}>
      {(s) => (
        <>
          <Heading title={s.name}>
            <State value={s.state} />
            {member && s.state === "running" && (
              <>
                <Button size="compact-sm" variant="light" loading={stop.isPending} onClick={() => stop.mutate()}>
                  Stop
                </Button>
                <Sure label="Kill" question={`Kill ${s.name} at once?`} onYes={() => kill.mutate()} />
              </>
            )}
            {member && <Sure label="Remove" question={`Kill ${s.name} and forget it, its files and its logs?`} onYes={() => remove.mutate()} />}
          </Heading>
          <Tabs defaultValue="overview" keepMounted={false}>
            <Tabs.List mb="md">
              <Tabs.Tab value="overview">Overview</Tabs.Tab>
              {member && s.state === "running" && <Tabs.Tab value="terminal">Terminal</Tabs.Tab>}
              {s.state === "running" && <Tabs.Tab value="files">Files</Tabs.Tab>}
              {s.state === "running" && <Tabs.Tab value="processes">Processes</Tabs.Tab>}
              <Tabs.Tab value="logs">Logs</Tabs.Tab>
            </Tabs.List>
            <Tabs.Panel value="overview">
              <Overview sandbox={s} />
            </Tabs.Panel>
            <Tabs.Panel value="terminal">
              <Suspense>
                <Terminal sandbox={s.name} />
              </Suspense>
            </Tabs.Panel>
            <Tabs.Panel value="files">
              <Files base={base} writable={member} />
            </Tabs.Panel>
            <Tabs.Panel value="processes">
              <Processes base={base} />
            </Tabs.Panel>
            <Tabs.Panel value="logs">
              <Logs base={base} />
            </Tabs.Panel>
          </Tabs>
        </>
      )}
    </Fetched>
  );
}

function Overview({ sandbox: s }: { sandbox: Sandbox }) {
  const facts: [string, string | undefined][] = [
    ["Id", s.id],
    ["Image", `${s.image} (${s.digest.slice(0, 26)})`],
    ["Provider", s.route ? `${s.provider} (${s.route.reason})` : s.provider],
    ["Created", when(s.created)],
    ["Expires", when(s.expires)],
    ["Ended", s.exit ? `${when(s.ended)}: ${s.exit.reason}, exit ${s.exit.code}` : undefined],
    ["Limits", `memory: ${bytes(s.limits?.memory)}, processors: ${s.limits?.cpus}, processes: ${s.limits?.processes}, disk: ${bytes(s.limits?.disk)}`],
    ["Labels", Object.entries(s.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(", ")],
  ];
  return (
    <Stack>
      <Table>
        <Table.Tbody>
          {facts
            .filter(([, v]) => v)
            .map(([k, v]) => (
              <Table.Tr key={k}>
                <Table.Td w={120} c="dimmed">
                  {k}
                </Table.Td>
                <Table.Td>{v}</Table.Td>
              </Table.Tr>
            ))}
        </Table.Tbody>
      </Table>
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
      {s.enforcement && <Enforced areas={s.enforcement} />}
    </Stack>
  );
}

function Files({ base, writable }: { base: string; writable: boolean }) {
  const [dir, setDir] = useState("/workspace");
  const list = useQuery({ queryKey: ["files", base, dir], queryFn: ({ signal }) => get<{ entries: Entry[] }>(`${base}/files?path=${path(dir)}`, signal) });
  const upload = useDo((f: File) => call("PUT", `${base}/files/content?path=${path(`${dir}/${f.name}`)}`, f), "It was uploaded");
  const remove = useDo((p: string) => call("DELETE", `${base}/files?path=${path(p)}`), "It was removed");
  const up = dir.replace(/\/[^/]*$/, "") || "/";
  return (
    <>
      <Group mb="sm">
        <ActionIcon variant="default" onClick={() => setDir(up)} disabled={dir === "/"} aria-label="Up">
          ↑
        </ActionIcon>
        <TextInput key={dir} defaultValue={dir} style={{ flex: 1 }} aria-label="Directory" onKeyDown={(e) => e.key === "Enter" && setDir(e.currentTarget.value)} />
        {writable && (
          <FileButton onChange={(f) => f && upload.mutate(f)}>
            {(props) => (
              <Button {...props} loading={upload.isPending}>
                Upload
              </Button>
            )}
          </FileButton>
        )}
      </Group>
      <Fetched query={list}>
        {({ entries }) => (
          <Rows head={["Name", "Size", "Owner", "Modified", ""]} empty="It is empty.">
            {entries.map((e) => (
              <Table.Tr key={e.path}>
                <Table.Td>
                  {e.type === "directory" ? (
                    <Anchor component="button" onClick={() => setDir(e.path)}>
                      {e.name}/
                    </Anchor>
                  ) : e.type === "file" ? (
                    <Anchor href={`${base}/files/content?path=${path(e.path)}`} download={e.name}>
                      {e.name}
                    </Anchor>
                  ) : (
                    <Text size="sm">
                      {e.name} {e.target && `→ ${e.target}`} <Badge size="xs">{e.type}</Badge>
                    </Text>
                  )}
                </Table.Td>
                <Table.Td>{e.type === "file" && bytes(e.size)}</Table.Td>
                <Table.Td>{e.owner}</Table.Td>
                <Table.Td>{when(e.modified)}</Table.Td>
                <Table.Td ta="right">{writable && <Sure label="Remove" question={`Remove ${e.path}?`} onYes={() => remove.mutate(e.path)} />}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}

interface Process {
  pid: number;
  command?: string[];
  shell?: string;
  tag?: string;
  started: string;
  running: boolean;
  written: number;
}

function Processes({ base }: { base: string }) {
  const list = useQuery({ queryKey: ["processes", base], queryFn: ({ signal }) => get<{ processes: Process[] }>(`${base}/processes`, signal), refetchInterval: 2000 });
  const signal = useDo((p: Process) => call("POST", `${base}/processes/${p.pid}/signal`, { signal: "SIGTERM" }), "SIGTERM was sent");
  return (
    <Fetched query={list}>
      {({ processes }) => (
        <Rows head={["PID", "Command", "Started", "Output", ""]} empty="There are no processes that were started to stay.">
          {processes.map((p) => (
            <Table.Tr key={p.pid}>
              <Table.Td>{p.pid}</Table.Td>
              <Table.Td>{p.command?.join(" ") ?? p.shell}</Table.Td>
              <Table.Td>{when(p.started)}</Table.Td>
              <Table.Td>{bytes(p.written)}</Table.Td>
              <Table.Td>
                {p.running ? (
                  <Button size="compact-sm" variant="light" onClick={() => signal.mutate(p)}>
                    End
                  </Button>
                ) : (
                  <Badge color="gray">ended</Badge>
                )}
              </Table.Td>
            </Table.Tr>
          ))}
        </Rows>
      )}
    </Fetched>
  );
}

function Logs({ base }: { base: string }) {
  const logs = useQuery({ queryKey: ["logs", base], queryFn: ({ signal }) => text(`${base}/logs?tail=500`, signal), refetchInterval: 2000 });
  return <Fetched query={logs}>{(l) => (l ? <Output>{l}</Output> : <Empty>Nothing was written yet.</Empty>)}</Fetched>;
}
