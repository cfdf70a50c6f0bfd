import { Anchor, Breadcrumbs, Button, FileButton, Group, Modal, Paper, Text, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { type DragEvent, useState } from "react";
import { ApiError, call, get, path } from "../../api";
import type { Entry } from "../../nouns";
import { Ago, bytes, Empty, Fetched, Output, Problem, Sure, useDo } from "../../parts";
import { type Column, List } from "../../table";
import type * as wire from "../../wire";

/** Files lists a directory of a sandbox, and shows, uploads, saves and removes files. */
export function Files({ base, writable }: { base: string; writable: boolean }) {
  const [dir, setDir] = useState("/workspace");
  const [over, setOver] = useState(false);
  const [shown, setShown] = useState<Entry>();
  const [typed, setTyped] = useState<string>();
  const list = useQuery({ queryKey: ["files", base, dir], queryFn: ({ signal }) => get<wire.Entries>(`${base}/files?path=${path(dir)}`, signal) });
  const join = (name: string) => `${dir === "/" ? "" : dir}/${name}`;
  const upload = useDo(async (files: File[]) => {
    for (const f of files) await call("PUT", `${base}/files/content?path=${path(join(f.name))}`, f);
  }, "The upload is complete");
  const remove = useDo((p: string) => call("DELETE", `${base}/files?path=${path(p)}`), "It was removed");
  const content = (e: Entry) => `${base}/files/content?path=${path(e.path)}`;
  const open = (e: Entry) => (e.type === "directory" || e.target_type === "directory" ? setDir(e.type === "directory" ? e.path : (e.target ?? e.path)) : e.type === "file" && setShown(e));
  const drop = (e: DragEvent) => {
    e.preventDefault();
    setOver(false);
    if (writable && e.dataTransfer.files.length > 0) upload.mutate([...e.dataTransfer.files]);
  };
  const parts = dir.split("/").filter(Boolean);
  const columns: Column<Entry>[] = [
    {
      title: "Name",
      sort: (e) => `${e.type === "directory" ? 0 : 1}${e.name}`,
      cell: (e) =>
        e.type === "directory" || e.type === "file" ? (
          <Anchor component="button" size="sm" ta="left" onClick={() => open(e)} style={{ overflowWrap: "anywhere" }}>
            {e.name}
            {e.type === "directory" && "/"}
          </Anchor>
        ) : (
          <Text size="sm" style={{ overflowWrap: "anywhere" }}>
            {e.name} {e.target ? `→ ${e.target}` : `(${e.type})`}
          </Text>
        ),
    },
    { title: "Size", cell: (e) => e.type === "file" && bytes(e.size), sort: (e) => e.size, right: true },
    { title: "Owner", cell: (e) => e.owner, sort: (e) => e.owner ?? "", wide: true },
    { title: "Mode", cell: (e) => (e.mode & 0o7777).toString(8).padStart(3, "0"), wide: true },
    { title: "Modified", cell: (e) => <Ago at={e.modified} />, sort: (e) => Date.parse(e.modified ?? "") || 0, wide: true },
    {
      title: "Actions",
      right: true,
      cell: (e) => (
        <Group gap={4} justify="flex-end" wrap="nowrap">
          {e.type === "file" && (
            <Button component="a" size="compact-sm" variant="subtle" href={content(e)} download={e.name} aria-label={`Download ${e.name}`}>
              Download
            </Button>
          )}
          {writable && <Sure label="Remove" question={`Remove ${e.path}?${e.type === "directory" ? " Its contents are removed too." : ""}`} onYes={() => remove.mutate(e.path)} />}
        </Group>
      ),
    },
  ];
  return (
    <div
      onDragOver={(e) => {
        e.preventDefault();
        setOver(writable);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
      style={over ? { outline: "2px dashed var(--mantine-color-blue-filled)", outlineOffset: 6 } : undefined}
    >
      <Group mb="sm" justify="space-between" gap="xs">
        {typed === undefined ? (
          <Group gap="xs">
            <Breadcrumbs separator="›" separatorMargin={4} aria-label="Directory">
              <Anchor component="button" size="sm" onClick={() => setDir("/")} aria-label="Root directory">
                /
              </Anchor>
              {parts.map((p, i) => (
                <Anchor key={i} component="button" size="sm" onClick={() => setDir(`/${parts.slice(0, i + 1).join("/")}`)} aria-current={i === parts.length - 1 ? "page" : undefined}>
                  {p}
                </Anchor>
              ))}
            </Breadcrumbs>
            <Button size="compact-xs" variant="subtle" onClick={() => setTyped(dir)}>
              Go to
            </Button>
          </Group>
        ) : (
          <form
            onSubmit={(e) => {
              e.preventDefault();
              setDir(typed.replace(/(.)\/+$/, "$1") || "/");
              setTyped(undefined);
            }}
          >
            <TextInput size="xs" w={280} aria-label="Directory" value={typed} onChange={(e) => setTyped(e.currentTarget.value)} onKeyDown={(e) => e.key === "Escape" && setTyped(undefined)} autoFocus />
          </form>
        )}
        {writable && (
          <Group gap="xs">
            <NewDirectory base={base} join={join} />
            <FileButton multiple onChange={(f) => f.length > 0 && upload.mutate(f)} inputProps={{ "aria-label": "Files to upload" }}>
              {(props) => (
                <Button {...props} size="compact-sm" loading={upload.isPending}>
                  Upload
                </Button>
              )}
            </FileButton>
          </Group>
        )}
      </Group>
      <Fetched query={list}>
        {({ entries }) => (
          <List
            key={dir}
            name="files"
            rows={[...entries].sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory"))}
            id={(e) => e.path}
            columns={columns}
            text={(e) => e.name}
            size={100}
            onOpen={open}
            details={false}
            bulk={writable ? [{ label: "Delete", danger: true, fits: () => true, act: (e) => call("DELETE", `${base}/files?path=${path(e.path)}`) }] : []}
            empty={<Empty>{writable ? "This directory is empty. Drop files here to upload them." : "This directory is empty."}</Empty>}
          />
        )}
      </Fetched>
      {shown && <Preview entry={shown} href={content(shown)} onClose={() => setShown(undefined)} />}
    </div>
  );
}

function NewDirectory({ base, join }: { base: string; join: (name: string) => string }) {
  const [open, { open: show, close }] = useDisclosure();
  const [name, setName] = useState("");
  const make = useDo(() => call("POST", `${base}/files/mkdir`, { path: join(name) } satisfies wire.MakeDirRequest), () => {
    setName("");
    close();
  });
  return (
    <>
      <Button size="compact-sm" variant="default" onClick={show}>
        New directory
      </Button>
      <Modal opened={open} onClose={close} title="New directory">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            make.mutate();
          }}
        >
          <Group align="flex-end">
            <TextInput flex={1} label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} required data-autofocus />
            <Button type="submit" loading={make.isPending}>
              Create
            </Button>
          </Group>
        </form>
      </Modal>
    </>
  );
}

const mostText = 256 * 1024;
const mostPicture = 4 * 1024 * 1024;
const pictures: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml" };

/** Preview shows the beginning of a file, or a picture. A picture is shown as a
 * picture only, so that scripts in an SVG file do not run. */
function Preview({ entry, href, onClose }: { entry: Entry; href: string; onClose: () => void }) {
  const type = pictures[entry.name.split(".").pop()!.toLowerCase()];
  const picture = type && entry.size <= mostPicture;
  const q = useQuery({
    queryKey: ["file", href, entry.modified, entry.size],
    refetchInterval: false,
    queryFn: async ({ signal }) => {
      const r = await fetch(picture ? href : `${href}&offset=0&length=${mostText}`, { signal, credentials: "same-origin" });
      if (!r.ok) throw new ApiError(r.status, "", `The file cannot be read: the server answered ${r.status}`);
      const all = new Uint8Array(await r.arrayBuffer());
      if (picture) return { picture: await dataURL(new Blob([all], { type })) };
      if (all.subarray(0, 8000).includes(0)) return { binary: true };
      return { text: new TextDecoder().decode(all) };
    },
  });
  return (
    <Modal opened onClose={onClose} title={entry.name} size="xl" styles={{ title: { overflowWrap: "anywhere" } }}>
      <div data-testid="preview">
        {q.error && <Problem error={q.error} />}
        {q.data?.picture && (
          <Paper withBorder p="xs" ta="center" bg="white">
            <img src={q.data.picture} alt={entry.name} style={{ maxWidth: "100%" }} />
          </Paper>
        )}
        {q.data?.binary && <Empty>This file is binary. Download it to read it.</Empty>}
        {q.data?.text !== undefined && (q.data.text ? <Output>{q.data.text}</Output> : <Empty>This file is empty.</Empty>)}
      </div>
      <Group justify="space-between" mt="sm">
        <Text size="xs" c="dimmed">
          {entry.path}, {bytes(entry.size)}
          {q.data?.text !== undefined && entry.size > mostText && `; the first ${bytes(mostText)} are shown`}
        </Text>
        <Button component="a" size="compact-sm" href={href} download={entry.name}>
          Download
        </Button>
      </Group>
    </Modal>
  );
}

function dataURL(b: Blob): Promise<string> {
  return new Promise((ok, no) => {
    const r = new FileReader();
    r.onload = () => ok(String(r.result));
    r.onerror = () => no(r.error);
    r.readAsDataURL(b);
  });
}
