import { Badge, Button, Modal, PasswordInput, Stack, Switch, Table, TagsInput, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import { may, type Whoami } from "../nouns";
import { Fetched, Heading, Rows, Sure, useDo, when } from "../parts";

interface Secret {
  name: string;
  hosts?: string[];
  exclusive?: boolean;
  version: number;
  updated: string;
}

export default function Secrets({ who }: { who: Whoami }) {
  const writable = may(who, "admin");
  const list = useQuery({ queryKey: ["secrets"], queryFn: ({ signal }) => get<{ secrets: Secret[] }>("/v1/secrets", signal) });
  const remove = useDo((n: string) => call("DELETE", `/v1/secrets/${path(n)}`), "The secret was forgotten");
  return (
    <>
      <Heading title="Secrets">{writable && <Put />}</Heading>
      <Fetched query={list}>
        {({ secrets }) => (
          <Rows head={["Name", "How sandboxes get it", "Version", "Updated", ""]} empty="There are no secrets.">
            {secrets.map((s) => (
              <Table.Tr key={s.name}>
                <Table.Td>{s.name}</Table.Td>
                <Table.Td>
                  {s.hosts?.length ? (
                    <>
                      <Badge color="green">brokered</Badge> to {s.hosts.join(", ")}
                    </>
                  ) : (
                    <Badge color="yellow">as a variable</Badge>
                  )}
                </Table.Td>
                <Table.Td>{s.version}</Table.Td>
                <Table.Td>{when(s.updated)}</Table.Td>
                <Table.Td ta="right">{writable && <Sure label="Remove" question={`Forget ${s.name}?`} onYes={() => remove.mutate(s.name)} />}</Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
    </>
  );
}

function Put() {
  const [open, { open: show, close }] = useDisclosure();
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const [hosts, setHosts] = useState<string[]>([]);
  const [exclusive, setExclusive] = useState(false);
  const put = useDo(
    // What is left empty stays as it is.
    () => call("PUT", `/v1/secrets/${path(name)}`, hosts.length === 0 ? { value } : { value, hosts, exclusive }),
    () => {
      setValue("");
      close();
    },
  );
  return (
    <>
      <Button onClick={show}>Set a secret</Button>
      <Modal opened={open} onClose={close} title="Set a secret">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            put.mutate();
          }}
        >
          <Stack>
            <TextInput label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} required data-autofocus />
            <PasswordInput label="Value" description="It is never shown again" value={value} onChange={(e) => setValue(e.currentTarget.value)} required autoComplete="off" />
            <TagsInput label="Hosts" description="With hosts it never enters a sandbox: the proxy puts it into requests to these. Empty keeps those that a secret has" value={hosts} onChange={setHosts} />
            <Switch label="Refuse other credentials to these hosts" checked={exclusive} onChange={(e) => setExclusive(e.currentTarget.checked)} disabled={hosts.length === 0} />
            <Button type="submit" loading={put.isPending}>
              Save
            </Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
