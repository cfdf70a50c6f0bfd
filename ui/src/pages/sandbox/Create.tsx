import { Autocomplete, Button, Group, Modal, NumberInput, Stack, Switch, TagsInput, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { call, get, path } from "../../api";
import type { Sandbox } from "../../nouns";
import { useDo } from "../../parts";
import type * as wire from "../../wire";

/** Create is the button and the form that create a sandbox. */
export function Create() {
  const [open, { open: show, close }] = useDisclosure();
  const [, go] = useLocation();
  const [name, setName] = useState("");
  const [image, setImage] = useState("host");
  const [minutes, setMinutes] = useState<number | string>(15);
  const [memory, setMemory] = useState<number | string>("");
  const [cpus, setCpus] = useState<number | string>("");
  const [labels, setLabels] = useState<string[]>([]);
  const [hosts, setHosts] = useState<string[]>([]);
  const [pausable, setPausable] = useState(false);
  const images = useQuery({ queryKey: ["images"], queryFn: ({ signal }) => get<wire.Images>("/v1/images", signal), enabled: open });
  const create = useDo(
    () =>
      call<Sandbox>("POST", "/v1/sandboxes", {
        name: name || undefined,
        image,
        ttl_ms: Number(minutes) * 60_000,
        limits: memory || cpus ? { memory: memory ? `${memory}MiB` : undefined, cpus: cpus ? Number(cpus) : undefined } : undefined,
        labels: labels.length ? Object.fromEntries(labels.map((l) => [l.replace(/=.*$/s, ""), l.replace(/^[^=]*=?/, "")])) : undefined,
        egress: hosts.length ? { rules: hosts.map(rule) } : undefined,
        pausable: pausable || undefined,
      } satisfies wire.Spec),
    (s) => {
      close();
      go(`/sandboxes/${path(s.name)}`);
    },
  );
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
          <Stack gap="sm">
            <TextInput label="Name" placeholder="generated" description="a-z, 0-9 and -" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
            <Autocomplete label="Image" data={[...new Set((images.data?.images ?? []).flatMap((i) => i.names))]} value={image} onChange={setImage} />
            <Group grow>
              <NumberInput label="Memory in MiB" placeholder="default" min={16} value={memory} onChange={setMemory} />
              <NumberInput label="Processors" placeholder="default" min={0.1} step={0.5} value={cpus} onChange={setCpus} />
            </Group>
            <NumberInput label="Minutes without use until it ends" min={1} value={minutes} onChange={setMinutes} />
            <TagsInput label="Labels" placeholder="team=search" description="key=value, for filters and usage" value={labels} onChange={setLabels} />
            <TagsInput label="Allowed hosts" placeholder="api.example.com:443" description="Without hosts, the sandbox has no network access" value={hosts} onChange={setHosts} />
            <Switch label="Can be paused while programs run" checked={pausable} onChange={(e) => setPausable(e.currentTarget.checked)} />
            <Button type="submit" loading={create.isPending}>
              Create
            </Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}

/** rule is the egress rule for a host, a network, or either with a port. */
export function rule(text: string) {
  const v6 = /^\[([^\]]+)\](?::(\d+))?$/.exec(text.trim()) ?? /^([^[\]]*:[^[\]]*:[^[\]]*)$/.exec(text.trim());
  if (v6) return { cidr: v6[1], ports: v6[2] ? [Number(v6[2])] : undefined };
  const [, to, port] = /^(.*?)(?::(\d+))?$/.exec(text.trim())!;
  const where = /^[\d.]+(\/\d+)?$/.test(to!) ? { cidr: to } : { host: to };
  return { ...where, ports: port ? [Number(port)] : undefined };
}
