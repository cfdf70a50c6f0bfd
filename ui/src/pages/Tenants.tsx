import { Button, Group, Modal, NumberInput, Stack, TagsInput, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, path } from "../api";
import type { Quota, Tenant } from "../nouns";
import { Ago, Empty, Fetched, Heading, Sure, useDo } from "../parts";
import { type Column, List } from "../table";
import type * as wire from "../wire";

export default function Tenants() {
  const list = useQuery({ queryKey: ["tenants"], queryFn: ({ signal }) => get<wire.Tenants>("/v1/tenants", signal) });
  const [editing, setEditing] = useState<Tenant | "new">();
  const remove = useDo((n: string) => call("DELETE", `/v1/tenants/${path(n)}`), "The tenant was removed");
  const bound = (n: number | undefined) => n || "unlimited";
  const columns: Column<Tenant>[] = [
    { title: "Name", cell: (t) => t.name, sort: (t) => t.name },
    { title: "Sandboxes", cell: (t) => bound(t.quota.sandboxes), sort: (t) => t.quota.sandboxes ?? 0, right: true },
    { title: "Executions", cell: (t) => bound(t.quota.executions), sort: (t) => t.quota.executions ?? 0, right: true, wide: true },
    { title: "A day", cell: (t) => bound(t.quota.executions_per_day), sort: (t) => t.quota.executions_per_day ?? 0, right: true, wide: true },
    { title: "Calls a second", cell: (t) => bound(t.quota.rate), sort: (t) => t.quota.rate ?? 0, right: true, wide: true },
    { title: "Budget", cell: (t) => t.budget || "none", sort: (t) => t.budget ?? 0, right: true, wide: true },
    { title: "Images", cell: (t) => t.ceilings.images?.join(", ") || "all", wide: true },
    { title: "Created", cell: (t) => <Ago at={t.created} />, sort: (t) => t.created ?? "", wide: true },
    {
      title: "Actions",
      right: true,
      cell: (t) => (
        <Group gap="xs" justify="flex-end" wrap="nowrap">
          <Button size="compact-sm" variant="light" onClick={() => setEditing(t)}>
            Quota
          </Button>
          <Sure label="Remove" question={`Remove ${t.name} with its keys, secrets and usage? Its audit log stays.`} onYes={() => remove.mutate(t.name)} />
        </Group>
      ),
    },
  ];
  return (
    <>
      <Heading title="Tenants">
        <Button onClick={() => setEditing("new")}>Create</Button>
      </Heading>
      <Fetched query={list}>
        {({ tenants }) => (
          <List name="tenants" rows={tenants} id={(t) => t.name} columns={columns} text={(t) => `${t.name} ${t.ceilings.images?.join(" ") ?? ""}`} empty={<Empty>There are no tenants.</Empty>} />
        )}
      </Fetched>
      {editing && <Editor tenant={editing === "new" ? undefined : editing} onClose={() => setEditing(undefined)} />}
    </>
  );
}

const bounds: [keyof Quota & string, string, string][] = [
  ["sandboxes", "Sandboxes at once", "0 means unlimited"],
  ["paused", "Paused at once", "0 means 1000"],
  ["executions", "Executions at once", "0 means unlimited"],
  ["executions_per_day", "Executions on a day", "0 means unlimited"],
  ["rate", "Calls a second", "0 means unlimited"],
];

function Editor({ tenant, onClose }: { tenant?: Tenant; onClose: () => void }) {
  const [name, setName] = useState(tenant?.name ?? "");
  const [quota, setQuota] = useState<Quota>(tenant?.quota ?? { executions: 10 });
  const [images, setImages] = useState(tenant?.ceilings.images ?? []);
  const [budget, setBudget] = useState(tenant?.budget ?? 0);
  const ceilings = { ...tenant?.ceilings, images };
  const save = useDo(
    () => (tenant ? call("PUT", `/v1/tenants/${path(name)}`, { quota, ceilings, budget } satisfies wire.TenantChange) : call("POST", "/v1/tenants", { name, quota, ceilings, budget } satisfies wire.TenantRequest)),
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
          {bounds.map(([key, label, description]) => (
            <NumberInput key={key} label={label} description={description} min={0} value={quota[key] ?? 0} onChange={(v) => setQuota({ ...quota, [key]: Number(v) || 0 })} />
          ))}
          <NumberInput
            label="Budget of a month"
            description="Cost of executions above which an alert fires; 0 disables it"
            min={0}
            value={budget}
            onChange={(v) => setBudget(Number(v) || 0)}
          />
          <TagsInput label="Allowed images" description="Names, patterns or digests; empty allows all" value={images} onChange={setImages} />
          <Button type="submit" loading={save.isPending}>
            Save
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}
