import { Code, Drawer, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../../api";
import type { Execution } from "../../nouns";
import { Ago, Command, Empty, Fetched, Output, State } from "../../parts";
import { type Column, List } from "../../table";
import { span } from "../../time";
import type * as wire from "../../wire";

const what = (x: Execution) => x.shell ?? x.command?.join(" ") ?? "";

function judge(x: Execution): [string, string] {
  if (!x.done) return ["creating", "running"];
  if (x.timed_out) return ["failed", "timed out"];
  if (x.oom_killed) return ["failed", "out of memory"];
  if (x.signal) return ["failed", `signal ${x.signal}`];
  return x.exit_code ? ["failed", `exit ${x.exit_code}`] : ["ok", "exit 0"];
}

const columns: Column<Execution>[] = [
  { title: "Result", cell: (x) => <State value={judge(x)[0]} says={judge(x)[1]} />, sort: (x) => judge(x)[1] },
  { title: "Command", cell: (x) => <Code fz="xs">{what(x).slice(0, 120)}</Code>, sort: what },
  { title: "Started", cell: (x) => <Ago at={x.started} />, sort: (x) => Date.parse(x.started) },
  { title: "Duration", cell: (x) => (x.done ? span(x.duration_ms) : ""), sort: (x) => x.duration_ms, right: true, wide: true },
];

/** Executions shows the commands that a sandbox has run, with their output. */
export function Executions({ base, name }: { base: string; name: string }) {
  const list = useQuery({ queryKey: ["execs", base], queryFn: ({ signal }) => get<wire.Executions>(`${base}/execs`, signal), refetchInterval: 3000 });
  const [open, setOpen] = useState<string>();
  const x = list.data?.execs.find((e) => e.exec === open);
  return (
    <>
      <Fetched query={list}>
        {({ execs }) => (
          <List
            name="executions"
            rows={execs}
            id={(e) => e.exec}
            columns={columns}
            text={(e) => `${what(e)} ${judge(e)[1]} ${e.stdout ?? ""} ${e.stderr ?? ""}`}
            filters={[{ name: "Result", of: (e) => judge(e)[1] }]}
            onOpen={(e) => setOpen(e.exec)}
            empty={<Empty next={<Command>{`brig sandbox exec ${name} -- uname -a`}</Command>}>No command ran here yet.</Empty>}
          />
        )}
      </Fetched>
      <Drawer opened={!!x} onClose={() => setOpen(undefined)} position="right" size="lg" title="Execution">
        {x && (
          <Stack>
            <Output>{what(x)}</Output>
            <Text size="sm">
              <State value={judge(x)[0]} says={judge(x)[1]} /> <Ago at={x.started} /> {x.done && `, took ${span(x.duration_ms)}`}
            </Text>
            {(["stdout", "stderr"] as const).map(
              (s) =>
                x[s] && (
                  <div key={s}>
                    <Title order={3}>{s}</Title>
                    <Output>{x[s]}</Output>
                  </div>
                ),
            )}
          </Stack>
        )}
      </Drawer>
    </>
  );
}
