import { Button, Code, Drawer, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { bytesOf, call, events, get } from "../../api";
import type { Process } from "../../nouns";
import { Ago, bytes, Empty, Fetched, Output, Problem, State, Sure, useDo } from "../../parts";
import { type Column, List } from "../../table";
import type * as wire from "../../wire";

const what = (p: Process) => p.command?.join(" ") ?? p.shell ?? "";
const state = (p: Process): [string, string] => (p.running ? ["running", "running"] : p.result?.exit_code ? ["failed", p.result.signal || `exit ${p.result.exit_code}`] : ["stopped", "ended"]);

/** Processes shows the background processes of a sandbox. */
export function Processes({ base, writable }: { base: string; writable: boolean }) {
  const list = useQuery({ queryKey: ["processes", base], queryFn: ({ signal }) => get<wire.Processes>(`${base}/processes`, signal), refetchInterval: 2000 });
  const signal = useDo(({ pid, name }: { pid: number; name: string }) => call("POST", `${base}/processes/${pid}/signal`, { signal: name } satisfies wire.SignalRequest), "The signal was sent");
  const [open, setOpen] = useState<Process>();
  const columns: Column<Process>[] = [
    { title: "PID", cell: (p) => p.pid, sort: (p) => p.pid },
    { title: "Command", cell: (p) => <Code fz="xs">{what(p).slice(0, 120)}</Code>, sort: what },
    { title: "State", cell: (p) => <State value={state(p)[0]} says={state(p)[1]} />, sort: (p) => state(p)[1] },
    { title: "User", cell: (p) => p.user || "user", sort: (p) => p.user ?? "", wide: true },
    { title: "Tag", cell: (p) => p.tag, sort: (p) => p.tag ?? "", wide: true },
    { title: "Started", cell: (p) => <Ago at={p.started} />, sort: (p) => Date.parse(p.started), wide: true },
    { title: "Output", cell: (p) => bytes(p.written), sort: (p) => p.written, right: true, wide: true },
    {
      title: "Actions",
      right: true,
      cell: (p) =>
        p.running &&
        writable && (
          <Group gap={4} justify="flex-end" wrap="nowrap">
            <Button size="compact-sm" variant="light" onClick={() => signal.mutate({ pid: p.pid, name: "SIGTERM" })}>
              End
            </Button>
            <Sure label="Kill" question={`Send SIGKILL to process ${p.pid}?`} onYes={() => signal.mutate({ pid: p.pid, name: "SIGKILL" })} />
          </Group>
        ),
    },
  ];
  return (
    <>
      <Group justify="flex-end" mb="xs">{writable && <Start base={base} />}</Group>
      <Fetched query={list}>
        {({ processes }) => (
          <List
            name="processes"
            rows={processes}
            id={(p) => String(p.pid)}
            columns={columns}
            text={(p) => `${p.pid} ${what(p)} ${p.tag ?? ""} ${state(p)[1]}`}
            filters={[{ name: "State", of: (p) => state(p)[1] }]}
            onOpen={setOpen}
            empty={<Empty>There are no background processes. Other commands are listed under Executions.</Empty>}
          />
        )}
      </Fetched>
      <Drawer opened={!!open} onClose={() => setOpen(undefined)} position="right" size="lg" title={open && `Process ${open.pid}`}>
        {open && <Watch base={base} process={open} />}
      </Drawer>
    </>
  );
}

function Start({ base }: { base: string }) {
  const [open, { open: show, close }] = useDisclosure();
  const [shell, setShell] = useState("");
  const start = useDo(() => call("POST", `${base}/processes`, { shell, no_input: true } satisfies wire.ProcessRequest), () => {
    setShell("");
    close();
  });
  return (
    <>
      <Button size="compact-sm" variant="default" onClick={show}>
        Start a process
      </Button>
      <Modal opened={open} onClose={close} title="Start a process">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            start.mutate();
          }}
        >
          <Stack>
            <TextInput label="Command" description="A shell command. It runs until it ends, or until the sandbox ends" placeholder="python3 -m http.server 8000" value={shell} onChange={(e) => setShell(e.currentTarget.value)} required data-autofocus />
            <Button type="submit" loading={start.isPending}>
              Start
            </Button>
          </Stack>
        </form>
      </Modal>
    </>
  );
}

/** Watch follows the output of a process. */
function Watch({ base, process: p }: { base: string; process: Process }) {
  const [output, setOutput] = useState("");
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const abort = new AbortController();
    const decoder = new TextDecoder();
    setOutput("");
    const follow = async () => {
      for await (const e of events<wire.ResultEvent>("GET", `${base}/processes/${p.pid}/output`, undefined, abort.signal)) {
        if (e.event === "stdout" || e.event === "stderr") {
          const said = decoder.decode(bytesOf(e), { stream: true });
          setOutput((o) => (o + said).slice(-200_000));
        }
      }
    };
    follow().catch((e: unknown) => abort.signal.aborted || setError(e));
    return () => abort.abort();
  }, [base, p.pid]);
  return (
    <Stack>
      <Output>{what(p)}</Output>
      <Text size="sm">
        <State value={state(p)[0]} says={state(p)[1]} /> started <Ago at={p.started} />
      </Text>
      {error !== undefined && <Problem error={error} />}
      {output ? <Output>{output}</Output> : <Empty>No output yet.</Empty>}
    </Stack>
  );
}
