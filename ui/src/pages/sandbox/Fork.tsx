import { Button, Modal, NumberInput, Stack, Switch, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";
import { useLocation } from "wouter";
import { call, path } from "../../api";
import type { Sandbox } from "../../nouns";
import { useDo } from "../../parts";
import type * as wire from "../../wire";

/** Fork is the button and the form that copy a running or paused sandbox. */
export function Fork({ sandbox, base }: { sandbox: Sandbox; base: string }) {
  const [open, { open: show, close }] = useDisclosure();
  const [, go] = useLocation();
  const [name, setName] = useState("");
  const [copies, setCopies] = useState<number | string>(1);
  const [paused, setPaused] = useState(false);
  const one = paused || Number(copies) === 1;
  const fork = useDo(
    () =>
      call<wire.Copies>("POST", `${base}/fork`, {
        name: (one && name) || undefined,
        count: paused ? undefined : Number(copies),
        paused: paused || undefined,
      } satisfies wire.ForkRequest),
    ({ sandboxes }) => {
      close();
      notifications.show({ message: `${sandbox.name} was copied to ${sandboxes.map((s) => s.name).join(", ")}`, color: "green" });
      go(sandboxes.length === 1 ? `/sandboxes/${path(sandboxes[0]!.name)}` : "/sandboxes");
    },
  );
  return (
    <>
      <Button size="compact-sm" variant="default" onClick={show}>
        Fork
      </Button>
      <Modal opened={open} onClose={close} title={`Fork ${sandbox.name}`}>
        <form
          onSubmit={(e) => {
            e.preventDefault();
            fork.mutate();
          }}
        >
          <Stack gap="sm">
            <Text size="sm">Each copy has the memory, programs and files of {sandbox.name}, and an identity of its own.</Text>
            {sandbox.state === "running" && <Switch label="Keep the copy paused, as a snapshot" checked={paused} onChange={(e) => setPaused(e.currentTarget.checked)} />}
            {!paused && <NumberInput label="Copies" min={1} max={32} allowDecimal={false} value={copies} onChange={setCopies} />}
            {one && <TextInput label="Name of the copy" placeholder="generated" description="a-z, 0-9 and -" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />}
            <Button type="submit" loading={fork.isPending}>
              Create
            </Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
