import { Alert, Button, Group, Tabs, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { useLocation, useSearchParams } from "wouter";
import { call, get, path } from "../../api";
import { may, type Sandbox, type Whoami } from "../../nouns";
import { bytes, Fetched, Go, Heading, State, Sure, useDo } from "../../parts";
import { span, until } from "../../time";
import { End } from "../Sandboxes";
import { Executions } from "./Executions";
import { Files } from "./Files";
import { Fork } from "./Fork";
import { Logs } from "./Logs";
import { Policy } from "./Policy";
import { Ports } from "./Ports";
import { Processes } from "./Processes";
import { Summary } from "./Summary";
import { Trail } from "./Trail";
import type * as wire from "../../wire";

const Terminal = lazy(() => import("../../Terminal").then((m) => ({ default: m.Terminal })));

/** One is the page of one sandbox. */
export function One({ name, who }: { name: string; who: Whoami }) {
  const [, go] = useLocation();
  const [params, setParams] = useSearchParams();
  const base = `/v1/sandboxes/${path(name)}`;
  const query = useQuery({ queryKey: ["sandbox", name], queryFn: ({ signal }) => get<Sandbox>(base, signal), refetchInterval: 2000 });
  const stop = useDo(() => call("POST", `${base}/stop`), `${name} was stopped`);
  const kill = useDo(() => call("POST", `${base}/kill`), `${name} was killed`);
  const client = useQueryClient();
  const pause = useDo(async () => {
    client.setQueryData(["sandbox", name], await call<Sandbox>("POST", `${base}/pause`));
    // The tabs that use the sandbox must be gone before their data is fetched again:
    // that would resume the sandbox.
    await new Promise((r) => setTimeout(r, 100));
  }, `${name} was paused`);
  const resume = useDo(() => call("POST", `${base}/resume`), `${name} was resumed`);
  const extend = useDo(() => call("POST", `${base}/extend`, { ttl_ms: 3_600_000 } satisfies wire.ExtendRequest), "The lease was extended to one hour from now");
  const remove = useDo(() => call("DELETE", base), () => go("/sandboxes"));
  const member = may(who, "member");
  const live = query.data?.state === "running";
  const tabs = [
    { value: "overview", title: "Overview", shown: true },
    { value: "terminal", title: "Terminal", shown: member && live },
    { value: "files", title: "Files", shown: live },
    { value: "logs", title: "Logs", shown: true },
    { value: "executions", title: "Executions", shown: true },
    { value: "processes", title: "Processes", shown: live },
    { value: "ports", title: "Ports", shown: member && live },
    { value: "policy", title: "Policy", shown: true },
    { value: "audit", title: "Audit", shown: may(who, "admin") },
  ].filter((t) => t.shown);
  const wanted = params.get("tab") ?? "overview";
  const tab = tabs.some((t) => t.value === wanted) ? wanted : "overview";
  // Once opened, the terminal stays while other tabs are shown.
  const [shell, setShell] = useState(false);
  useEffect(() => setShell((was) => live && (was || tab === "terminal")), [tab, live]);
  return (
    <>
      <Text size="sm" mb={4}>
        <Go to="/sandboxes">Sandboxes</Go>
      </Text>
      <Fetched query={query}>
        {(s) => (
          <>
            <Heading title={s.name}>
              <State value={s.state} />
              <Text size="sm" c="dimmed" data-testid="end">
                <End sandbox={s} />
              </Text>
              {member && (live || s.state === "paused") && <Fork sandbox={s} base={base} />}
              {member && live && (
                <>
                  <Button size="compact-sm" variant="default" loading={extend.isPending} onClick={() => extend.mutate()}>
                    Extend
                  </Button>
                  <Button size="compact-sm" variant="default" loading={pause.isPending} onClick={() => pause.mutate()}>
                    Pause
                  </Button>
                  <Button size="compact-sm" variant="default" loading={stop.isPending} onClick={() => stop.mutate()}>
                    Stop
                  </Button>
                  <Sure label="Kill" question={`Kill ${s.name} at once? Its programs get no signal before.`} onYes={() => kill.mutate()} />
                </>
              )}
              {member && <Sure label="Remove" question={`Remove ${s.name} with its files, logs and executions? ${live ? "It is running and will be killed." : ""}`} onYes={() => remove.mutate()} />}
            </Heading>
            {s.state === "paused" && (
              <Alert color="violet" mb="md" title="Paused" data-testid="paused">
                <Group justify="space-between" gap="xs">
                  <Text size="sm">
                    {s.pause?.files_only ? "Its files" : "Its memory and files"} take {bytes(s.pause?.bytes)} on disk. It is kept for {until(s.expires).replace("in ", "") || "as long as the server is configured to"}; resumed, it has {span(s.pause?.left_ms)} of its lease left. Every use {s.pause?.files_only ? "boots it again with its files" : "resumes it"}.
                  </Text>
                  {member && (
                    <Button size="compact-sm" loading={resume.isPending} onClick={() => resume.mutate()}>
                      Resume
                    </Button>
                  )}
                </Group>
              </Alert>
            )}
            <Tabs value={tab} keepMounted={false} keepMountedMode="display-none" onChange={(t) => setParams(t && t !== "overview" ? { tab: t } : {}, { replace: true })}>
              <Tabs.List mb="md" style={{ flexWrap: "nowrap", overflowX: "auto", overflowY: "hidden" }}>
                {tabs.map((t) => (
                  <Tabs.Tab key={t.value} value={t.value} px="sm" miw="max-content">
                    {t.title}
                  </Tabs.Tab>
                ))}
              </Tabs.List>
              <Tabs.Panel value="overview">
                <Summary sandbox={s} base={base} />
              </Tabs.Panel>
              <Tabs.Panel value="terminal" keepMounted>
                {shell && (
                  <Suspense>
                    <Terminal sandbox={s.id} shown={tab === "terminal"} />
                  </Suspense>
                )}
              </Tabs.Panel>
              <Tabs.Panel value="files">
                <Files base={base} writable={member} />
              </Tabs.Panel>
              <Tabs.Panel value="logs">
                <Logs base={base} name={s.name} />
              </Tabs.Panel>
              <Tabs.Panel value="executions">
                <Executions base={base} name={s.name} />
              </Tabs.Panel>
              <Tabs.Panel value="processes">
                <Processes base={base} writable={member} />
              </Tabs.Panel>
              <Tabs.Panel value="ports">
                <Ports base={base} sandbox={s} />
              </Tabs.Panel>
              <Tabs.Panel value="policy">
                <Policy base={base} sandbox={s} writable={member && live} />
              </Tabs.Panel>
              <Tabs.Panel value="audit">
                <Trail sandbox={s} />
              </Tabs.Panel>
            </Tabs>
          </>
        )}
      </Fetched>
    </>
  );
}
