// Small parts that several pages have.

import { Alert, Badge, Button, Code, Group, Loader, Modal, Stack, Table, Text, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ApiError } from "./api";
import type { Enforcement } from "./nouns";

/** Problem says what went wrong, and what to do about it. */
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

export function Empty({ children }: { children: ReactNode }) {
  return (
    <Text c="dimmed" ta="center" py="xl">
      {children}
    </Text>
  );
}

/** Heading is a page's title, with what can be done beside it. */
export function Heading({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Group justify="space-between" mb="md">
      <Title order={3}>{title}</Title>
      <Group gap="xs">{children}</Group>
    </Group>
  );
}

/** Fetched shows what was asked for when it is there, and why it is not, or not the newest. */
export function Fetched<T>({ query, children }: { query: UseQueryResult<T>; children: (data: T) => ReactNode }) {
  if (query.data !== undefined)
    return (
      <>
        {query.error && <Problem error={query.error} />}
        {children(query.data)}
      </>
    );
  if (query.error) return <Problem error={query.error} />;
  return <Loader aria-label="Loading" />;
}

/** Rows is a table. */
export function Rows({ head, children, empty }: { head: string[]; children: ReactNode[]; empty: string }) {
  if (children.length === 0) return <Empty>{empty}</Empty>;
  return (
    <Table.ScrollContainer minWidth={600}>
      <Table highlightOnHover verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            {head.map((h) => (
              <Table.Th key={h}>{h}</Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>{children}</Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

/** useDo does something that changes what is shown, and says how it went, unless the page itself says what went wrong. */
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

/** Sure is a button that asks before it does what cannot be taken back. */
export function Sure({ label, question, onYes }: { label: string; question: string; onYes: () => void }) {
  const [open, { open: ask, close }] = useDisclosure();
  return (
    <>
      <Button size="compact-sm" color="red" variant="light" onClick={ask}>
        {label}
      </Button>
      <Modal opened={open} onClose={close} title={label}>
        <Stack>
          <Text>{question}</Text>
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              Cancel
            </Button>
            <Button
              color="red"
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
  stopping: "yellow",
  stopped: "gray",
  boundary: "green",
  gaps: "yellow",
  none: "red",
};

export function State({ value }: { value: string }) {
  return (
    <Badge variant="light" color={colors[value] ?? "gray"}>
      {value}
    </Badge>
  );
}

/** Output is what a program wrote. */
export function Output({ children }: { children: string }) {
  return (
    <Code block mah={420} style={{ overflow: "auto", whiteSpace: "pre-wrap" }}>
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

/** Enforced is how far each area of a policy is enforced, and how. */
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
