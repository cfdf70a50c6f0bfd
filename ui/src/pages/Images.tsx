import { Badge, Button, Code, Group, Modal, Paper, Progress, Stack, Table, TagsInput, Text, TextInput, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call, events, get } from "../api";
import { type Image, may, type Whoami } from "../nouns";
import { Ago, bytes, Command, Empty, Fetched, Heading, Problem, Rows, Sure, useDo } from "../parts";
import { type Column, List } from "../table";
import { span } from "../time";
import type * as wire from "../wire";

export default function Images({ who }: { who: Whoami }) {
  const operator = may(who, "operator");
  const images = useQuery({ queryKey: ["images"], queryFn: ({ signal }) => get<wire.Images>("/v1/images", signal) });
  const templates = useQuery({ queryKey: ["templates"], queryFn: ({ signal }) => get<wire.Templates>("/v1/templates", signal) });
  const remove = useDo((ref: string) => call("DELETE", `/v1/images/${ref}`), "The image was removed");
  const { jobs, start, drop } = useJobs();
  const columns: Column<Image>[] = [
    {
      title: "Names",
      sort: (i) => i.names[0] ?? i.digest,
      cell: (i) => (
        <>
          <Text size="sm" style={{ overflowWrap: "anywhere" }}>
            {i.names.join(", ") || i.digest.slice(0, 26)}
          </Text>
          {i.notes?.map((n) => (
            <Text key={n} size="xs" c="dimmed">
              {n}
            </Text>
          ))}
        </>
      ),
    },
    { title: "Digest", cell: (i) => <Code title={i.digest}>{i.digest.slice(0, 19)}</Code>, wide: true },
    { title: "Source", cell: (i) => <Badge variant="light" tt="none">{i.source}</Badge>, sort: (i) => i.source, wide: true },
    { title: "Size", cell: (i) => (i.size ? bytes(i.size) : ""), sort: (i) => i.size, right: true },
    { title: "Created", cell: (i) => <Ago at={i.created} />, sort: (i) => i.created ?? "", wide: true },
    { title: "Actions", right: true, cell: (i) => operator && i.source !== "host" && <Sure label="Remove" question={`Remove ${i.names[0] ?? i.digest}?`} onYes={() => remove.mutate(i.names[0] ?? i.digest)} /> },
  ];
  return (
    <>
      <Heading title="Images">
        {operator && (
          <>
            <Build onBuild={(name, packages) => start(name, "/v1/images/build", { name, packages })} />
            <Pull onPull={(ref) => start(ref, "/v1/images/pull", { ref })} />
          </>
        )}
      </Heading>
      {jobs.map((j) => (
        <Progressing key={j.id} job={j} onClose={() => drop(j.id)} />
      ))}
      <Fetched query={images}>
        {({ images }) => (
          <List
            name="images"
            rows={images}
            id={(i) => i.digest}
            columns={columns}
            text={(i) => `${i.names.join(" ")} ${i.digest} ${i.source}`}
            filters={[{ name: "Source", of: (i) => i.source }]}
            empty={<Empty next={<Command>brig image pull python:3.11-slim</Command>}>There are no images.</Empty>}
          />
        )}
      </Fetched>
      <Title order={2} my="md">
        Templates
      </Title>
      <Fetched query={templates}>
        {({ templates }) => (
          <Rows head={["Name", "Image", "Instead, until that exists"]} empty="There are no templates. Build one with: brig template build FOLDER">
            {templates.map((t) => (
              <Table.Tr key={t.name}>
                <Table.Td>{t.name}</Table.Td>
                <Table.Td>{t.built ? `built by the tenant: ${t.built.tags.map((one) => one.tag).join(", ")}` : t.image}</Table.Td>
                <Table.Td>{t.stand_in}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}

/** Job is an image that is being pulled or built. */
interface Job {
  id: number;
  name: string;
  step: string;
  done: number;
  total: number;
  began: number; // when this step began
  error?: unknown;
}

/** useJobs runs pulls and builds, and reports their progress. */
function useJobs() {
  const client = useQueryClient();
  const [jobs, setJobs] = useState<Job[]>([]);
  const start = async (name: string, url: string, body: unknown) => {
    const id = Date.now();
    const change = (f: (j: Job) => Job) => setJobs((all) => all.map((j) => (j.id === id ? f(j) : j)));
    setJobs((all) => [...all, { id, name, step: "starting", done: 0, total: 0, began: Date.now() }]);
    try {
      for await (const e of events<wire.ImageEvent>("POST", url, body)) {
        if (e.event === "progress") change((j) => ({ ...j, step: e.step ?? "", done: e.done ?? 0, total: e.total ?? 0, began: e.step === j.step ? j.began : Date.now() }));
      }
      setJobs((all) => all.filter((j) => j.id !== id));
      notifications.show({ message: `${name} is ready`, color: "green" });
    } catch (error) {
      change((j) => ({ ...j, error }));
    }
    await client.invalidateQueries({ queryKey: ["images"] });
  };
  return { jobs, start, drop: (id: number) => setJobs((all) => all.filter((j) => j.id !== id)) };
}

function Progressing({ job: j, onClose }: { job: Job; onClose: () => void }) {
  const seconds = (Date.now() - j.began) / 1000;
  const rate = seconds > 0.5 ? j.done / seconds : 0;
  const sized = j.total > 4096; // bytes, not a count of layers
  const left = rate > 0 && j.total > j.done ? ((j.total - j.done) / rate) * 1000 : undefined;
  const amount = (n: number) => (sized ? bytes(n) : String(n));
  return (
    <Paper withBorder p="sm" mb="sm" data-testid="job">
      <Group justify="space-between" gap="xs">
        <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
          {j.name}
        </Text>
        <Text size="sm" c="dimmed">
          {j.error ? "failed" : j.step} {!j.error && j.total > 0 && `${amount(j.done)} of ${amount(j.total)}`}
          {!j.error && sized && rate > 0 && `, ${bytes(rate)}/s`}
          {!j.error && left !== undefined && `, ${span(left)} left`}
        </Text>
      </Group>
      {j.error ? (
        <Stack gap="xs" mt="xs">
          <Problem error={j.error} />
          <Button size="compact-sm" variant="default" onClick={onClose} style={{ alignSelf: "flex-end" }}>
            Dismiss
          </Button>
        </Stack>
      ) : (
        <Progress mt="xs" value={j.total ? (100 * j.done) / j.total : 100} animated={!j.total} striped={!j.total} aria-label={`Progress of ${j.name}`} />
      )}
    </Paper>
  );
}

function Pull({ onPull }: { onPull: (ref: string) => void }) {
  const [open, { open: show, close }] = useDisclosure();
  const [ref, setRef] = useState("");
  return (
    <>
      <Button onClick={show}>Pull</Button>
      <Modal opened={open} onClose={close} title="Pull an image from a registry">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            onPull(ref);
            setRef("");
            close();
          }}
        >
          <Stack>
            <TextInput label="Reference" placeholder="python:3.11-slim" value={ref} onChange={(e) => setRef(e.currentTarget.value)} required data-autofocus />
            <Button type="submit">Pull</Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}

function Build({ onBuild }: { onBuild: (name: string, packages: string[]) => void }) {
  const [open, { open: show, close }] = useDisclosure();
  const [name, setName] = useState("");
  const [packages, setPackages] = useState<string[]>([]);
  return (
    <>
      <Button variant="default" onClick={show}>
        Build
      </Button>
      <Modal opened={open} onClose={close} title="Build an image from Debian packages">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            onBuild(name, packages);
            close();
          }}
        >
          <Stack>
            <TextInput label="Name" description="a-z, 0-9 and -" value={name} onChange={(e) => setName(e.currentTarget.value)} required data-autofocus />
            <TagsInput label="Packages" placeholder="python3" description="In addition to those that every system needs" value={packages} onChange={setPackages} />
            <Button type="submit">Build</Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
