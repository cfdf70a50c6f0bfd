import { Badge, Button, Modal, PasswordInput, Stack, Switch, TagsInput, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import { may, type Secret, type Whoami } from "../nouns";
import { Ago, Command, Empty, Fetched, Heading, Sure, useDo } from "../parts";
import { type Column, List } from "../table";
import type * as wire from "../wire";

export default function Secrets({ who }: { who: Whoami }) {
  const writable = may(who, "admin");
  const list = useQuery({ queryKey: ["secrets"], queryFn: ({ signal }) => get<wire.Secrets>("/v1/secrets", signal) });
  const remove = useDo((n: string) => call("DELETE", `/v1/secrets/${path(n)}`), "The secret was removed");
  const columns: Column<Secret>[] = [
    { title: "Name", cell: (s) => s.name, sort: (s) => s.name },
    {
      title: "How sandboxes get it",
      cell: (s) =>
        s.hosts?.length ? (
          <>
            <Badge variant="light" color="green" tt="none">
              brokered
            </Badge>{" "}
            to {s.hosts.join(", ")}
          </>
        ) : (
          <Badge variant="light" color="yellow" tt="none">
            environment variable
          </Badge>
        ),
    },
    { title: "Version", cell: (s) => s.version, sort: (s) => s.version, right: true, wide: true },
    { title: "Updated", cell: (s) => <Ago at={s.updated} />, sort: (s) => s.updated, wide: true },
    { title: "Actions", right: true, cell: (s) => writable && <Sure label="Remove" question={`Remove ${s.name}? Programs that have it as a variable keep its value until they end.`} onYes={() => remove.mutate(s.name)} /> },
  ];
  return (
    <>
      <Heading title="Secrets">{writable && <Put />}</Heading>
      <Fetched query={list}>
        {({ secrets }) => (
          <List
            name="secrets"
            rows={secrets}
            id={(s) => s.name}
            columns={columns}
            text={(s) => `${s.name} ${s.hosts?.join(" ") ?? ""}`}
            filters={[{ name: "Given", of: (s) => (s.hosts?.length ? "brokered" : "as a variable") }]}
            bulk={writable ? [{ label: "Delete", danger: true, fits: () => true, act: (s) => call("DELETE", `/v1/secrets/${path(s.name)}`) }] : []}
            empty={<Empty next={<Command>{"printf swordfish | brig secret set api-token --host api.example.com"}</Command>}>There are no secrets.</Empty>}
          />
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
    // Empty fields stay unchanged.
    () => call("PUT", `/v1/secrets/${path(name)}`, (hosts.length === 0 ? { value } : { value, hosts, exclusive }) satisfies wire.SecretRequest),
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
            <TagsInput label="Hosts" description="With hosts, the proxy inserts the value into requests to them, and it never enters a sandbox. Leave empty to keep the hosts of an existing secret" value={hosts} onChange={setHosts} />
            <Switch label="Reject other credentials to these hosts" checked={exclusive} onChange={(e) => setExclusive(e.currentTarget.checked)} disabled={hosts.length === 0} />
            <Button type="submit" loading={put.isPending}>
              Save
            </Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}
