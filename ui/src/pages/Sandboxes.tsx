import { Badge, Group, Text, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "wouter";
import { call, pages, path } from "../api";
import { may, type Sandbox, type Whoami } from "../nouns";
import { Ago, bytes, Command, Empty, Fetched, Go, Heading, State, when } from "../parts";
import { Connect } from "../snippets";
import { type Column, List } from "../table";
import { until } from "../time";
import { Create } from "./sandbox/Create";
import { One } from "./sandbox/One";

export default function Sandboxes({ who }: { who: Whoami }) {
  const name = useParams()["*"];
  return name ? <One key={name} name={decodeURIComponent(name)} who={who} /> : <All who={who} />;
}

const most = 5000;

const reason = (s: Sandbox) => (s.exit ? `${s.exit.reason.replaceAll("_", " ")}${s.exit.code ? `, exit ${s.exit.code}` : ""}` : "");

/** End shows when and how a sandbox ends or has ended. */
export function End({ sandbox: s }: { sandbox: Sandbox }) {
  if (s.state === "stopped")
    return (
      <span>
        {reason(s)} <Ago at={s.ended} />
      </span>
    );
  if (s.state === "paused") return <span title={when(s.expires)}>removed {until(s.expires)} unless resumed ({bytes(s.pause?.bytes)})</span>;
  if (s.expires) return <span title={when(s.expires)}>{until(s.expires).replace("in", "after")} without use</span>;
  return null;
}

const labels = (s: Sandbox) => Object.entries(s.labels ?? {}).map(([k, v]) => `${k}=${v}`);

const columns: Column<Sandbox>[] = [
  { title: "Name", cell: (s) => <Go to={`/sandboxes/${path(s.name)}`}>{s.name}</Go>, sort: (s) => s.name },
  { title: "State", cell: (s) => <State value={s.state} />, sort: (s) => s.state },
  { title: "Image", cell: (s) => <Text size="sm" lineClamp={1}>{s.template ?? s.image}</Text>, sort: (s) => s.image ?? "", wide: true },
  {
    title: "Labels",
    wide: true,
    cell: (s) => (
      <Group gap={4}>
        {labels(s)
          .slice(0, 3)
          .map((l) => (
            <Badge key={l} size="sm" variant="default" tt="none" maw={180}>
              {l}
            </Badge>
          ))}
        {labels(s).length > 3 && (
          <Tooltip label={labels(s).slice(3).join(", ")} multiline maw={400}>
            <Text size="xs">+{labels(s).length - 3}</Text>
          </Tooltip>
        )}
      </Group>
    ),
  },
  { title: "Provider", cell: (s) => <span title={s.route?.reason}>{s.provider}</span>, sort: (s) => s.provider, wide: true },
  { title: "Created", cell: (s) => <Ago at={s.created} />, sort: (s) => Date.parse(s.created) },
  { title: "Ends", cell: (s) => <End sandbox={s} />, sort: (s) => Date.parse(s.ended ?? s.expires ?? s.created), wide: true },
];

function All({ who }: { who: Whoami }) {
  const list = useQuery({ queryKey: ["sandboxes"], queryFn: ({ signal }) => pages<"sandboxes", Sandbox>("/v1/sandboxes", "sandboxes", most, signal), refetchInterval: (q) => ((q.state.data?.sandboxes.length ?? 0) > 1000 ? 10_000 : 2500) });
  const member = may(who, "member");
  const act = (verb: string) => (s: Sandbox) => call("POST", `/v1/sandboxes/${path(s.name)}/${verb}`);
  return (
    <>
      <Heading title="Sandboxes">{member && <Create />}</Heading>
      <Fetched query={list}>
        {({ sandboxes, more }) => (
          <List
            name="sandboxes"
            rows={sandboxes}
            id={(s) => s.id}
            columns={columns}
            text={(s) => `${s.name} ${s.id} ${s.state} ${s.image} ${s.template ?? ""} ${s.provider} ${labels(s).join(" ")} ${reason(s)}`}
            filters={[
              { name: "State", of: (s) => s.state },
              { name: "Label", of: labels },
              { name: "Image", of: (s) => s.template ?? s.image ?? "" },
            ]}
            bulk={
              member
                ? [
                    { label: "Pause", fits: (s) => s.state === "running", act: act("pause") },
                    { label: "Resume", fits: (s) => s.state === "paused", act: act("resume") },
                    { label: "Stop", fits: (s) => s.state === "running", act: act("stop") },
                    { label: "Remove", danger: true, fits: () => true, act: (s) => call("DELETE", `/v1/sandboxes/${path(s.name)}`) },
                  ]
                : []
            }
            empty={
              <Empty
                next={
                  <>
                    <Text size="sm" ta="center">
                      Create one with the button above, on the command line, or from a program:
                    </Text>
                    <Command>{"brig sandbox create one --ttl 10m\nbrig sandbox exec one -- uname -a"}</Command>
                    <Connect who={who} />
                  </>
                }
              >
                There are no sandboxes.
              </Empty>
            }
            below={more && <Text size="sm" c="dimmed">The newest {most} are listed. Remove stopped ones to see the others.</Text>}
          />
        )}
      </Fetched>
    </>
  );
}
