// Components that several pages share.

import { Alert, Anchor, Badge, Button, Code, Group, Loader, Modal, Stack, Table, Text, TextInput, Title, VisuallyHidden } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useLocation } from "wouter";
import { ApiError } from "./api";
import type { Enforcement } from "./nouns";
import { ago } from "./time";

/** Problem shows an error and its fix. */
export function Problem({ error }: { error: unknown }) {
  const e = error instanceof ApiError ? error : undefined;
  return (
    <Alert color="red" title={e?.code || "Error"} role="alert">
      <Text size="sm">{error instanceof Error ? error.message : String(error)}</Text>
      {e?.hint && (
        <Text size="sm" c="dimmed">
          {e.hint}
        </Text>
      )}
    </Alert>
  );
}

/** Empty is shown in place of an empty list, with a next step. */
export function Empty({ children, next }: { children: ReactNode; next?: ReactNode }) {
  return (
    <Stack gap="md" py="xl" maw={720} mx="auto">
      <Text c="dimmed" ta="center">
        {children}
      </Text>
      {next}
    </Stack>
  );
}

/** Command is a line for a terminal. */
export function Command({ children }: { children: string }) {
  return (
    <Code block tabIndex={0} aria-label="Command" style={{ overflowX: "auto" }}>
      {children}
    </Code>
  );
}

/** Go is a link to another page of the console. */
export function Go({ to, inline, children }: { to: string; inline?: boolean; children: ReactNode }) {
  const [, go] = useLocation();
  return (
    <Anchor
      size="sm"
      underline={inline ? "always" : "hover"} // in a sentence, color alone does not tell that it is a link
      href={`/console${to}`}
      onClick={(e) => {
        if (e.ctrlKey || e.metaKey || e.shiftKey) return;
        e.preventDefault();
        go(to);
      }}
    >
      {children}
    </Anchor>
  );
}

/** Heading is a page's title, with actions beside it. */
export function Heading({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Group justify="space-between" mb="md" gap="xs">
      <Title order={1} style={{ overflowWrap: "anywhere" }}>
        {title}
      </Title>
      <Group gap="xs">{children}</Group>
    </Group>
  );
}

/** Fetched shows fetched data, or the error if it is missing or outdated. */
export function Fetched<T>({ query, children }: { query: UseQueryResult<T>; children: (data: T) => ReactNode }) {
  if (query.data !== undefined)
    return (
      <>
        {query.error && <Problem error={query.error} />}
        {children(query.data)}
      </>
    );
  if (query.error) return <Problem error={query.error} />;
  return <Loader aria-label="Loading" role="status" />;
}

/** Rows is a table. */
export function Rows({ head, children, empty, next }: { head: string[]; children: ReactNode[]; empty: string; next?: ReactNode }) {
  if (children.length === 0) return <Empty next={next}>{empty}</Empty>;
  return (
    <div role="region" aria-label={head[0]} tabIndex={0} style={{ overflowX: "auto", position: "relative" }}>
      <Table highlightOnHover verticalSpacing="xs" miw={600}>
        <Table.Thead>
          <Table.Tr>
            {head.map((h) => (
              <Table.Th key={h}>{h || <VisuallyHidden>Actions</VisuallyHidden>}</Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>{children}</Table.Tbody>
      </Table>
    </div>
  );
}

/** useDo runs an action, refreshes the data, and shows a notification, unless the page shows the error itself. */
export function useDo<A = void, R = unknown>(f: (a: A) => Promise<R>, done?: string | ((r: R) => void), quiet = false) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: f,
    onSuccess: (r) => {
      if (typeof done === "string") notifications.show({ message: done, color: "green" });
      else done?.(r);
      return client.invalidateQueries();
    },
    onError: (e) => {
      if (quiet) return;
      const hint = e instanceof ApiError && e.hint ? ` — ${e.hint}` : "";
      notifications.show({ message: e.message + hint, color: "red", autoClose: 8000 });
    },
  });
}

interface SureProps {
  label: string;
  question: ReactNode;
  type?: string; // the text that the user must type to continue
  onYes: () => void;
}

/** Sure is a button that asks for confirmation before an irreversible action. */
export function Sure({ label, question, type, onYes }: SureProps) {
  const [open, { open: ask, close }] = useDisclosure();
  const [typed, setTyped] = useState("");
  return (
    <>
      <Button size="compact-sm" color="red" variant="light" onClick={ask}>
        {label}
      </Button>
      <Modal opened={open} onClose={close} title={label}>
        <Stack>
          <Text component="div" style={{ overflowWrap: "anywhere" }}>
            {question}
          </Text>
          {type && <TextInput label={`Type ${type} to confirm`} value={typed} onChange={(e) => setTyped(e.currentTarget.value)} autoComplete="off" data-autofocus />}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              Cancel
            </Button>
            <Button
              color="red"
              disabled={!!type && typed !== type}
              onClick={() => {
                close();
                onYes();
              }}
            >
              {label}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}

const colors: Record<string, string> = {
  running: "green",
  creating: "blue",
  paused: "violet",
  stopping: "yellow",
  stopped: "gray",
  ok: "green",
  success: "green",
  error: "red",
  timeout: "red",
  out_of_memory: "red",
  failed: "red",
  refused: "orange",
  seen: "gray",
  boundary: "green",
  gaps: "yellow",
  none: "red",
};

export function State({ value, says }: { value: string; says?: string }) {
  return (
    <Badge variant="light" tt="none" miw="max-content" color={colors[value] ?? "gray"}>
      {says ?? value}
    </Badge>
  );
}

/** Ago shows the age of a time; the exact time appears on hover. */
export function Ago({ at }: { at?: string }) {
  return at ? (
    <time dateTime={at} title={when(at)} style={{ whiteSpace: "nowrap" }}>
      {ago(at)}
    </time>
  ) : null;
}

/** Output shows the output of a program. */
export function Output({ children }: { children: string }) {
  return (
    <Code block mah={420} tabIndex={0} style={{ overflow: "auto", whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
      {children}
    </Code>
  );
}

export function bytes(n: number | undefined): string {
  if (!n) return "0 B";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = Math.max(0, Math.min(Math.floor(Math.log2(n) / 10), units.length - 1));
  return `${(n / 2 ** (10 * at)).toFixed(at ? 1 : 0)} ${units[at]}`;
}

export function when(t: string | undefined): string {
  return t ? new Date(t).toLocaleString() : "";
}

/** Enforced shows the level of enforcement of each area of a policy. */
export function Enforced({ areas }: { areas: Record<string, Enforcement> }) {
  return (
    <Rows head={["Area", "Level", "How", "Gaps"]} empty="Nothing is known of it.">
      {Object.entries(areas).map(([area, e]) => (
        <Table.Tr key={area}>
          <Table.Td>{area}</Table.Td>
          <Table.Td>
            <State value={e.level} />
          </Table.Td>
          <Table.Td title={e.evidence?.join("\n")}>{e.how}</Table.Td>
          <Table.Td>{e.gaps?.join("; ")}</Table.Td>
        </Table.Tr>
      ))}
    </Rows>
  );
}
