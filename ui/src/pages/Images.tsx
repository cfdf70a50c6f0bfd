import { Badge, Button, Group, Modal, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, events, get } from "../api";
import { may, type Whoami } from "../nouns";
import { bytes, Fetched, Heading, Rows, Sure, useDo, when } from "../parts";

interface Image {
  digest: string;
  names: string[];
  size: number;
  source: string;
  created?: string;
  notes?: string[];
}

interface Template {
  name: string;
  image: string;
  stand_in?: string;
}

export default function Images({ who }: { who: Whoami }) {
  const operator = may(who, "operator");
  const images = useQuery({ queryKey: ["images"], queryFn: ({ signal }) => get<{ images: Image[] }>("/v1/images", signal) });
  const templates = useQuery({ queryKey: ["templates"], queryFn: ({ signal }) => get<{ templates: Template[] }>("/v1/templates", signal) });
  const remove = useDo((ref: string) => call("DELETE", `/v1/images/${ref}`), "The image was removed");
  return (
    <>
      <Heading title="Images">{operator && <Pull />}</Heading>
      <Fetched query={images}>
        {({ images }) => (
          <Rows head={["Names", "Source", "Size", "Created", ""]} empty="There are no images.">
            {images.map((i) => (
              <Table.Tr key={i.digest}>
                <Table.Td>
                  <Text size="sm">{i.names.join(", ") || i.digest.slice(0, 26)}</Text>
                  {i.notes?.map((n) => (
                    <Text key={n} size="xs" c="dimmed">
                      {n}
                    </Text>
                  ))}
                </Table.Td>
                <Table.Td>
                  <Badge variant="light">{i.source}</Badge>
                </Table.Td>
                <Table.Td>{i.size ? bytes(i.size) : ""}</Table.Td>
                <Table.Td>{when(i.created)}</Table.Td>
                <Table.Td ta="right">{operator && i.source !== "host" && <Sure label="Remove" question={`Remove ${i.names[0] ?? i.digest}?`} onYes={() => remove.mutate(i.names[0] ?? i.digest)} />}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
      <Title order={3} my="md">
        Templates
      </Title>
      <Fetched query={templates}>
        {({ templates }) => (
          <Rows head={["Name", "Image", "Until it is there"]} empty="There are no templates.">
            {templates.map((t) => (
              <Table.Tr key={t.name}>
                <Table.Td>{t.name}</Table.Td>
                <Table.Td>{t.image}</Table.Td>
                <Table.Td>{t.stand_in}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}

type Event = { event: string; step?: string; done?: number; total?: number };

function Pull() {
  const [open, { open: show, close }] = useDisclosure();
  const [ref, setRef] = useState("");
  const [step, setStep] = useState("");
  const pull = useDo(async () => {
    for await (const e of events<Event>("POST", "/v1/images/pull", { ref, stream: true })) {
      if (e.event === "progress") setStep(`${e.step} ${e.total ? `${Math.round((100 * (e.done ?? 0)) / e.total)} %` : ""}`);
    }
  }, close as () => void);
  return (
    <>
      <Button onClick={show}>Pull</Button>
      <Modal opened={open} onClose={close} title="Pull an image from a registry">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            pull.mutate();
          }}
        >
          <Stack>
            <TextInput label="Reference" placeholder="python:3.11-slim" value={ref} onChange={(e) => setRef(e.currentTarget.value)} required data-autofocus />
            <Group justify="space-between">
              <Text size="sm" c="dimmed">
                {step}
              </Text>
              <Button type="submit" loading={pull.isPending}>
                Pull
              </Button>
            </Group>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
