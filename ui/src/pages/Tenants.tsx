import { Button, Group, Modal, NumberInput, Stack, Table, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import { Fetched, Heading, Rows, Sure, useDo, when } from "../parts";

interface Quota {
  sandboxes?: number;
  executions?: number;
  executions_per_day?: number;
  rate?: number;
  [other: string]: number | string | undefined;
}

interface Tenant {
  name: string;
  created?: string;
  quota: Quota;
  budget?: number;
  ceilings: { images?: string[]; [other: string]: unknown };
}

export default function Tenants() {
  const list = useQuery({ queryKey: ["tenants"], queryFn: ({ signal }) => get<{ tenants: Tenant[] }>("/v1/tenants", signal) });
  const [editing, setEditing] = useState<Tenant | "new">();
  const remove = useDo((n: string) => call("DELETE", `/v1/tenants/${path(n)}`), "The tenant was removed");
  return (
    <>
      <Heading title="Tenants">
        <Button onClick={() => setEditing("new")}>Create</Button>
      </Heading>
      <Fetched query={list}>
        {({ tenants }) => (
          <Rows head={["Name", "Sandboxes", "Executions", "A day", "Calls a second", "Budget", "Images", "Created", ""]} empty="There are no tenants.">
            {tenants.map((t) => (
              <Table.Tr key={t.name}>
                <Table.Td>{t.name}</Table.Td>
                <Table.Td>{t.quota.sandboxes || "any"}</Table.Td>
                <Table.Td>{t.quota.executions || "any"}</Table.Td>
                <Table.Td>{t.quota.executions_per_day || "any"}</Table.Td>
                <Table.Td>{t.quota.rate || "any"}</Table.Td>
                <Table.Td>{t.budget || "none"}</Table.Td>
                <Table.Td>{t.ceilings.images?.join(", ") || "all"}</Table.Td>
                <Table.Td>{when(t.created)}</Table.Td>
                <Table.Td>
                  <Group gap="xs" justify="flex-end" wrap="nowrap">
                    <Button size="compact-sm" variant="light" onClick={() => setEditing(t)}>
                      Quota
                    </Button>
                    <Sure label="Remove" question={`Forget ${t.name} with its keys, secrets and usage?`} onYes={() => remove.mutate(t.name)} />
                  </Group>
                </Table.Td>
              </Table.Tr>
            ))}
          </Rows>
        )}
      </Fetched>
      {editing && <Editor tenant={editing === "new" ? undefined : editing} onClose={() => setEditing(undefined)} />}
    </>
  );
}

const bounds: [keyof Quota & string, string][] = [
  ["sandboxes", "Sandboxes at once"],
  ["executions", "Executions at once"],
  ["executions_per_day", "Executions on a day"],
  ["rate", "Calls a second"],
];

function Editor({ tenant, onClose }: { tenant?: Tenant; onClose: () => void }) {
  const [name, setName] = useState(tenant?.name ?? "");
  const [quota, setQuota] = useState<Quota>(tenant?.quota ?? { executions: 10 });
  const [images, setImages] = useState(tenant?.ceilings.images ?? []);
  const [budget, setBudget] = useState(tenant?.budget ?? 0);
  const ceilings = { ...tenant?.ceilings, images };
  const save = useDo(
    () => (tenant ? call("PUT", `/v1/tenants/${path(name)}`, { quota, ceilings, budget }) : call("POST", "/v1/tenants", { name, quota, ceilings, budget })),
    onClose as () => void,
  );
  return (
    <Modal opened onClose={onClose} title={tenant ? tenant.name : "Create a tenant"}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate();
        }}
      >
        <Stack>
          {!tenant && <TextInput label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} required data-autofocus />}
          {bounds.map(([key, label]) => (
            <NumberInput key={key} label={label} description="0 is no bound" min={0} value={quota[key] ?? 0} onChange={(v) => setQuota({ ...quota, [key]: Number(v) || undefined })} />
          ))}
          <NumberInput
            label="Budget of a month"
            description="What executions may cost before an alert says so; 0 is none"
            min={0}
            value={budget}
            onChange={(v) => setBudget(Number(v) || 0)}
          />
          <TagsInput label="Images that may be used" description="Names, patterns or digests; none is all" value={images} onChange={setImages} />
          <Button type="submit" loading={save.isPending}>
            Save
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}
