import {
  Alert, Badge, Button, Card, Group, JsonInput, Modal, NumberInput, PasswordInput, Select, SimpleGrid, Stack, Switch, TagsInput, Text, Textarea, TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { ApiError, call, get, path } from "../api";
import type { Field, Provider, ProviderTest, Routing, RoutingChange } from "../nouns";
import { Fetched, Heading, Output, Problem, Sure, useDo } from "../parts";
import type * as wire from "../wire";

export default function Providers() {
  const list = useQuery({ queryKey: ["providers"], queryFn: ({ signal }) => get<wire.Providers>("/v1/providers", signal) });
  const [editing, setEditing] = useState<string>();
  return (
    <>
      <Heading title="Providers" />
      <Fetched query={list}>
        {({ providers }) => (
          <>
            <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }}>
              {providers.map((p) => (
                <Overview key={p.id} provider={p} onEdit={() => setEditing(p.id)} />
              ))}
            </SimpleGrid>
            <RoutingCard providers={providers} />
            {providers
              .filter((p) => p.id === editing)
              .map((p) => (
                <Editor key={p.id} provider={p} onClose={() => setEditing(undefined)} />
              ))}
          </>
        )}
      </Fetched>
    </>
  );
}

function Overview({ provider: p, onEdit }: { provider: Provider; onEdit: () => void }) {
  const activate = useDo(() => call("POST", `/v1/providers/${path(p.id)}/activate`), `${p.id} is the active provider`);
  const remove = useDo(() => call("DELETE", `/v1/providers/${path(p.id)}`), `${p.id} was removed`);
  return (
    <Card withBorder data-testid={`provider-${p.id}`}>
      <Group justify="space-between" wrap="nowrap">
        <Text fw={600}>{p.title}</Text>
        <Group gap={4}>
          {p.active && <Badge>active</Badge>}
          {p.configured ? (
            <Badge color={p.up ? "green" : "red"} variant="light">
              {p.up ? "up" : "down"}
            </Badge>
          ) : (
            <Badge color="gray" variant="light">
              not configured
            </Badge>
          )}
        </Group>
      </Group>
      <Text size="xs" c="dimmed">
        {p.id}
        {p.capabilities?.isolation && ` · isolation: ${p.capabilities.isolation}`} {p.users > 0 && ` · ${p.users} in use`}
      </Text>
      <Text size="sm" my="xs">
        {p.description}
      </Text>
      <Group gap={4}>
        {p.tags.map((t) => (
          <Badge key={t} variant="default" size="sm">
            {t}
          </Badge>
        ))}
      </Group>
      {p.why && (
        <Alert color="red" my="xs" p="xs">
          {p.why}
        </Alert>
      )}
      <Group mt="sm" gap="xs">
        <Button size="compact-sm" variant="light" onClick={onEdit}>
          {p.configured ? "Settings" : "Configure"}
        </Button>
        {p.configured && !p.active && (
          <Button size="compact-sm" variant="light" loading={activate.isPending} onClick={() => activate.mutate()}>
            Activate
          </Button>
        )}
        {p.configured && !p.home && !p.active && <Sure label="Remove" question={`Forget ${p.id} and its configuration?`} onYes={() => remove.mutate()} />}
      </Group>
    </Card>
  );
}

type Values = Record<string, unknown>;

function Editor({ provider: p, onClose }: { provider: Provider; onClose: () => void }) {
  const [values, setValues] = useState<Values>(() => ({ ...defaults(p.fields), ...p.config }));
  const [terms, setTerms] = useState(p.terms);
  const [active, setActive] = useState(p.active);
  const [test, setTest] = useState(true);
  const [result, setResult] = useState<ProviderTest>();
  const given = () => Object.fromEntries(p.fields.filter((f) => !f.readonly && values[f.name] !== undefined && values[f.name] !== "").map((f) => [f.name, values[f.name]]));
  const save = useDo(
    () => call<Provider>("PUT", `/v1/providers/${path(p.id)}`, { ...(p.home ? {} : { config: given() }), terms, activate: active && !p.active, test: test && !p.home } satisfies wire.ProviderRequest),
    onClose as () => void,
    true,
  );
  const trial = useDo(() => call<ProviderTest>("POST", `/v1/providers/${path(p.id)}/test`, (p.home ? {} : { config: given() }) satisfies wire.TestRequest), setResult, true);
  const error = save.error ?? trial.error;
  const wrong = error instanceof ApiError ? Object.fromEntries(error.fields.map((f) => [f.field, f.message])) : {};
  // Scroll to the error, which may be out of view.
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    const field = form.current?.querySelector<HTMLElement>("[aria-invalid=true]");
    if (field) field.focus();
    else form.current?.querySelector("[role=alert]")?.scrollIntoView({ block: "center" });
  }, [error, result]);
  return (
    <Modal opened onClose={onClose} title={p.title} size="lg">
      <form
        ref={form}
        onSubmit={(e) => {
          e.preventDefault();
          trial.reset();
          save.mutate();
        }}
      >
        <Stack>
          {p.fields.map((f) => (
            <FieldInput key={f.name} field={f} value={values[f.name]} error={wrong[f.name]} onChange={(v) => setValues({ ...values, [f.name]: v })} />
          ))}
          <Group grow align="flex-start">
            <TextInput label="Region" description="Used by routing" value={terms.region ?? ""} onChange={(e) => setTerms({ ...terms, region: e.currentTarget.value })} />
            <NumberInput label="At once" description="0 means unlimited" min={0} value={terms.max ?? 0} onChange={(v) => setTerms({ ...terms, max: Number(v) || 0 })} />
            <NumberInput label="Price of a second" description="For accounts and routing" min={0} step={0.001} value={terms.second ?? 0} onChange={(v) => setTerms({ ...terms, second: Number(v) || 0 })} />
          </Group>
          <Group>
            <Switch label="Active" checked={active} disabled={p.active} onChange={(e) => setActive(e.currentTarget.checked)} />
            {!p.home && <Switch label="Test before saving" checked={test} onChange={(e) => setTest(e.currentTarget.checked)} />}
          </Group>
          {error && <Problem error={error} />}
          {result && <TestResult result={result} />}
          <Group justify="flex-end">
            <Button variant="default" loading={trial.isPending} onClick={() => (setResult(undefined), save.reset(), trial.mutate())}>
              Test connection
            </Button>
            <Button type="submit" loading={save.isPending}>
              Save
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function TestResult({ result: t }: { result: ProviderTest }) {
  return (
    <Alert color={t.success ? "green" : "red"} title={t.success ? `Connected in ${Math.round(t.latency_ms)} ms` : "Connection failed"} data-testid="test-result">
      <Text size="sm">{t.message}</Text>
      {t.hint && (
        <Text size="sm" c="dimmed">
          {t.hint}
        </Text>
      )}
      {(t.stdout || t.stderr) && <Output>{t.stdout + t.stderr}</Output>}
    </Alert>
  );
}

const defaults = (fields: Field[]): Values => Object.fromEntries(fields.filter((f) => f.default !== undefined).map((f) => [f.name, f.default]));

/** FieldInput is the input that a field's schema describes. */
function FieldInput({ field: f, value, error, onChange }: { field: Field; value: unknown; error?: string; onChange: (v: unknown) => void }) {
  const common = { label: f.label, description: f.description, placeholder: f.placeholder, withAsterisk: f.required, disabled: f.readonly, error, name: f.name };
  const typed = String(value ?? "");
  switch (true) {
    case f.type === "boolean":
      return <Switch label={f.label} description={f.description} disabled={f.readonly} checked={value === true} error={error} onChange={(e) => onChange(e.currentTarget.checked)} />;
    case f.type === "integer" || f.type === "number":
      // The server checks the range, and its message has the limits.
      return <NumberInput {...common} allowDecimal={f.type === "number"} clampBehavior="none" value={value as number} onChange={(v) => onChange(v === "" ? undefined : v)} rightSection={range(f)} rightSectionWidth={90} />;
    case f.type === "array":
      return <TagsInput {...common} value={(value as string[]) ?? []} onChange={onChange} />;
    case !!f.options:
      return <Select {...common} data={f.options} value={typed || null} allowDeselect={!f.required} onChange={(v) => onChange(v ?? undefined)} />;
    case f.multiline:
      return <Textarea {...common} autosize minRows={3} value={typed} onChange={(e) => onChange(e.currentTarget.value)} />;
    case f.secret:
      return <PasswordInput {...common} autoComplete="off" value={typed} onChange={(e) => onChange(e.currentTarget.value)} />;
  }
  return <TextInput {...common} value={typed} onChange={(e) => onChange(e.currentTarget.value)} />;
}

function range(f: Field) {
  if (f.min === undefined && f.max === undefined) return null;
  return (
    <Text size="xs" c="dimmed">
      {f.min ?? ""}–{f.max ?? ""}
    </Text>
  );
}

function RoutingCard({ providers }: { providers: Provider[] }) {
  const routing = useQuery({ queryKey: ["routing"], queryFn: ({ signal }) => get<Routing>("/v1/routing", signal) });
  return (
    <Card withBorder mt="lg">
      <Text fw={600}>Routing</Text>
      <Text size="sm" c="dimmed">
        Which providers are tried, and in which order. Without any, the active one alone.
      </Text>
      <Fetched query={routing}>{(r) => <RoutingForm key={JSON.stringify(r)} routing={r} ids={providers.filter((p) => p.configured).map((p) => p.id)} />}</Fetched>
    </Card>
  );
}

function RoutingForm({ routing, ids }: { routing: Routing; ids: string[] }) {
  const [r, setR] = useState<RoutingChange>(routing);
  const [split, setSplit] = useState(JSON.stringify(routing.split ?? {}));
  const save = useDo(() => call("PUT", "/v1/routing", { ...r, split: JSON.parse(split || "{}") } satisfies RoutingChange), "The routing was saved");
  return (
    <Stack mt="sm">
      <TagsInput label="Order" description="The first choice first; the others when it is unavailable" data={ids} value={r.order ?? []} onChange={(order) => setR({ ...r, order })} />
      <TagsInput label="Overflow" description="Tried first while the first choice is full" data={ids} value={r.overflow ?? []} onChange={(overflow) => setR({ ...r, overflow })} />
      <Group grow align="flex-start">
        <Select label="Prefer" data={[{ value: "", label: "the order" }, "cheapest", "region"]} value={r.prefer ?? ""} onChange={(v) => setR({ ...r, prefer: v ?? "" })} />
        <TagsInput label="Regions" description="The nearest first" value={r.regions ?? []} onChange={(regions) => setR({ ...r, regions })} />
        <JsonInput label="Split" description='By weights, for example {"gvisor": 9, "e2b": 1}' value={split} onChange={setSplit} validationError="This is not JSON" />
      </Group>
      <Group justify="flex-end">
        <Button onClick={() => save.mutate()} loading={save.isPending}>
          Save routing
        </Button>
      </Group>
    </Stack>
  );
}
