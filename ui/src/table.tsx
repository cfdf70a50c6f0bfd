import { ActionIcon, Box, Button, Checkbox, CloseButton, Group, MultiSelect, Pagination, Paper, Select, Table, Text, TextInput, UnstyledButton, VisuallyHidden } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "wouter";
import { Sure } from "./parts";

export interface Column<T> {
  title: string;
  cell: (row: T) => ReactNode;
  sort?: (row: T) => string | number;
  wide?: boolean; // not on a telephone
  right?: boolean;
}

export interface Filter<T> {
  name: string;
  of: (row: T) => string | string[];
}

export interface Bulk<T> {
  label: string;
  danger?: boolean;
  fits: (row: T) => boolean;
  act: (row: T) => Promise<unknown>;
}

interface Props<T> {
  name: string; // of the listed objects, in the plural
  rows: T[];
  id: (row: T) => string;
  columns: Column<T>[];
  text: (row: T) => string;
  filters?: Filter<T>[];
  bulk?: Bulk<T>[];
  empty: ReactNode;
  size?: number;
  onOpen?: (row: T) => void;
  details?: boolean; // a button for onOpen at the end of each row
  below?: ReactNode;
}

/** List is a table with search, filters, order and pages, whose state is in the URL. */
export function List<T>({ name, rows, id, columns, text, filters = [], bulk = [], empty, size = 50, onOpen, details = !!onOpen, below }: Props<T>) {
  const [params, setParams] = useSearchParams();
  const [page, setPage] = useState(1);
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const search = useRef<HTMLInputElement>(null);
  const set = (key: string, values: string[]) => {
    setPage(1);
    setParams(
      (p) => {
        p.delete(key);
        for (const v of values) if (v) p.append(key, v);
        return p;
      },
      { replace: true },
    );
  };
  const clear = () =>
    setParams(
      (p) => {
        for (const key of ["q", ...filters.map((f) => f.name)]) p.delete(key);
        return p;
      },
      { replace: true },
    );
  const q = params.get("q") ?? "";
  const order = params.get("sort") ?? "";
  useEffect(() => {
    const slash = (e: KeyboardEvent) => {
      const at = e.target as HTMLElement;
      if (e.key !== "/" || e.ctrlKey || e.metaKey || at.closest("input, textarea, [contenteditable=true], .xterm")) return;
      e.preventDefault();
      search.current?.focus();
    };
    window.addEventListener("keydown", slash);
    return () => window.removeEventListener("keydown", slash);
  }, []);

  const values = (f: Filter<T>, r: T) => [f.of(r)].flat();
  const options = filters.map((f) => [...new Set([...rows.flatMap((r) => values(f, r)), ...params.getAll(f.name)])].filter(Boolean).sort());
  const filtered = useMemo(() => {
    const needles = q.toLowerCase().split(/\s+/).filter(Boolean);
    const out = rows.filter((r) => {
      const hay = needles.length ? text(r).toLowerCase() : "";
      return needles.every((n) => hay.includes(n)) && filters.every((f) => params.getAll(f.name).length === 0 || values(f, r).some((v) => params.getAll(f.name).includes(v)));
    });
    const by = columns.find((c) => c.sort && order.replace(/^-/, "") === c.title);
    if (by) {
      const sign = order.startsWith("-") ? -1 : 1;
      out.sort((a, b) => {
        const [x, y] = [by.sort!(a), by.sort!(b)];
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
    }
    return out;
    // Each render creates new columns and filters, so only rows and parameters are dependencies.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [rows, params]);
  if (rows.length === 0 && !q && filters.every((f) => params.getAll(f.name).length === 0)) return <>{empty}{below}</>;

  const pages = Math.max(1, Math.ceil(filtered.length / size));
  const at = Math.min(page, pages);
  const shown = filtered.slice((at - 1) * size, at * size);
  const picked = rows.filter((r) => chosen.has(id(r)));
  const toggle = (keys: string[], on: boolean) => setChosen((c) => new Set(on ? [...c, ...keys] : [...c].filter((k) => !keys.includes(k))));
  const all = shown.length > 0 && shown.every((r) => chosen.has(id(r)));
  return (
    <>
      <Group mb="sm" gap="xs">
        <TextInput ref={search} flex="1 1 220px" maw={{ sm: 360 }} aria-label={`Search ${name}`} placeholder={`Search ${name} (press /)`} value={q} onChange={(e) => set("q", [e.currentTarget.value])} rightSection={q && <CloseButton size="sm" aria-label="Clear the search" onClick={() => set("q", [])} />} />
        {filters.map((f, i) => (
          <MultiSelect key={f.name} flex="1 1 130px" miw={100} maw={210} aria-label={f.name} placeholder={params.getAll(f.name).length ? undefined : f.name} data={options[i]!} value={params.getAll(f.name)} onChange={(v) => set(f.name, v)} clearable searchable={options[i]!.length > 8} clearButtonProps={{ "aria-label": `Clear ${f.name}` }} />
        ))}
        <Select hiddenFrom="sm" flex="1 1 130px" miw={100} maw={210} aria-label="Order" placeholder="Order" data={columns.filter((c) => c.sort).flatMap((c) => [{ value: c.title, label: `${c.title} ↑` }, { value: `-${c.title}`, label: `${c.title} ↓` }])} value={order || null} onChange={(v) => set("sort", [v ?? ""])} clearable />
        <Text size="sm" c="dimmed" role="status">
          {filtered.length === rows.length ? counted(rows.length, name) : `${filtered.length} of ${counted(rows.length, name)}`}
        </Text>
      </Group>
      {picked.length > 0 && <Chosen name={name} rows={picked} bulk={bulk} onDone={() => setChosen(new Set())} />}
      {filtered.length === 0 ? (
        <Box ta="center" py="xl">
          <Text c="dimmed">No {name} match.</Text>
          <Button mt="xs" variant="subtle" onClick={clear}>
            Clear search and filters
          </Button>
        </Box>
      ) : (
        <Scroll label={name}>
          <Table highlightOnHover verticalSpacing={7}>
            <Table.Thead>
              <Table.Tr>
                {bulk.length > 0 && (
                  <Table.Th w={36}>
                    <Checkbox size="xs" aria-label={`Select all ${name} on this page`} checked={all} indeterminate={!all && shown.some((r) => chosen.has(id(r)))} onChange={(e) => toggle(shown.map(id), e.currentTarget.checked)} />
                  </Table.Th>
                )}
                {columns.map((c) => (
                  <Head key={c.title} column={c} order={order} onOrder={(o) => set("sort", [o])} />
                ))}
                {details && (
                  <Table.Th w={30}>
                    <VisuallyHidden>Details</VisuallyHidden>
                  </Table.Th>
                )}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {shown.map((r) => (
                <Table.Tr key={id(r)} bg={chosen.has(id(r)) ? "var(--mantine-color-blue-light)" : undefined} onClick={onOpen && ((e) => !(e.target as HTMLElement).closest("a, button, input, label") && !getSelection()?.toString() && onOpen(r))} style={onOpen && { cursor: "pointer" }}>
                  {bulk.length > 0 && (
                    <Table.Td>
                      <Checkbox size="xs" aria-label={`Select ${text(r).split(" ")[0]}`} checked={chosen.has(id(r))} onChange={(e) => toggle([id(r)], e.currentTarget.checked)} />
                    </Table.Td>
                  )}
                  {columns.map((c) => (
                    <Table.Td key={c.title} visibleFrom={c.wide ? "sm" : undefined} ta={c.right ? "right" : undefined} style={{ overflowWrap: "anywhere" }}>
                      {c.cell(r)}
                    </Table.Td>
                  ))}
                  {details && (
                    <Table.Td>
                      <ActionIcon variant="subtle" color="gray" size="sm" aria-label={`Details of ${id(r)}`} onClick={() => onOpen?.(r)}>
                        ›
                      </ActionIcon>
                    </Table.Td>
                  )}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Scroll>
      )}
      <Group justify="space-between" mt="md">
        {pages > 1 ? <Pagination total={pages} value={at} onChange={setPage} size="sm" getControlProps={(c) => ({ "aria-label": `${c} page` })} getItemProps={(p) => ({ "aria-label": `page ${p}` })} /> : <span />}
        {below}
      </Group>
    </>
  );
}

function Head<T>({ column: c, order, onOrder }: { column: Column<T>; order: string; onOrder: (o: string) => void }) {
  const mine = order.replace(/^-/, "") === c.title;
  const down = order.startsWith("-");
  const style = { whiteSpace: "nowrap" } as const;
  const sorted = mine ? (down ? "descending" : "ascending") : undefined;
  return (
    <Table.Th visibleFrom={c.wide ? "sm" : undefined} ta={c.right ? "right" : undefined} aria-sort={sorted} style={style}>
      {c.sort ? (
        <UnstyledButton fz="inherit" fw="inherit" onClick={() => onOrder(!mine ? c.title : down ? "" : `-${c.title}`)}>
          {c.title}{" "}
          <Text span size="xs" c={mine ? undefined : "dimmed"} aria-hidden>
            {mine ? (down ? "↓" : "↑") : "↕"}
          </Text>
        </UnstyledButton>
      ) : (
        c.title
      )}
    </Table.Th>
  );
}

/** counted returns a number with its noun, in the singular for one. */
function counted(n: number, name: string): string {
  return `${n} ${n === 1 ? name.replace(/ies$/, "y").replace(/(x|ss)es$/, "$1").replace(/([^s])s$/, "$1") : name}`;
}

/** Scroll is a region that a keyboard can scroll sideways. */
export function Scroll({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div role="region" aria-label={label} tabIndex={0} style={{ overflowX: "auto", position: "relative" }}>
      {children}
    </div>
  );
}

function Chosen<T>({ name, rows, bulk, onDone }: { name: string; rows: T[]; bulk: Bulk<T>[]; onDone: () => void }) {
  const client = useQueryClient();
  const [busy, setBusy] = useState("");
  const act = async (b: Bulk<T>) => {
    const fit = rows.filter(b.fits);
    const failed: string[] = [];
    for (const [i, r] of fit.entries()) {
      setBusy(`${i + 1} of ${fit.length}`);
      await b.act(r).catch((e: unknown) => failed.push(e instanceof Error ? e.message : String(e)));
    }
    setBusy("");
    if (failed.length > 0) notifications.show({ color: "red", autoClose: 10_000, title: `${failed.length} of ${fit.length} failed`, message: [...new Set(failed)].slice(0, 3).join("; ") });
    else notifications.show({ color: "green", message: `${b.label}: ${counted(fit.length, name)}` });
    await client.invalidateQueries();
    onDone();
  };
  return (
    <Paper withBorder p={6} px="sm" mb="sm" role="toolbar" aria-label={`Selected ${name}`}>
      <Group gap="xs">
        <Text size="sm" fw={600}>
          {rows.length} selected
        </Text>
        {busy ? (
          <Text size="sm">{busy} …</Text>
        ) : (
          bulk.map((b) => {
            const n = rows.filter(b.fits).length;
            if (n === 0) return null;
            const label = n === rows.length ? b.label : `${b.label} ${n}`;
            return b.danger ? (
              <Sure key={b.label} label={label} question={`${b.label} ${counted(n, name)}? This cannot be undone.`} onYes={() => act(b)} />
            ) : (
              <Button key={b.label} size="compact-sm" variant="light" onClick={() => act(b)}>
                {label}
              </Button>
            );
          })
        )}
        <Button size="compact-sm" variant="subtle" onClick={onDone}>
          Clear the selection
        </Button>
      </Group>
    </Paper>
  );
}
