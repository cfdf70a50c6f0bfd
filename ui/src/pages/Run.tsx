import { Alert, Badge, Button, Group, Kbd, Select, Stack, Text, Textarea } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { bytesOf, events, get } from "../api";
import { Editor } from "../Editor";
import { may, type Outcome, type Whoami } from "../nouns";
import { Heading, Output, Problem } from "../parts";
import type * as wire from "../wire";

type Language = NonNullable<wire.RunRequest["language"]>;
const samples: Partial<Record<Language, string>> = {
  python: 'import platform\n\nprint("hello from", platform.node(), platform.release())\n',
  javascript: 'console.log("hello from node", process.version);\n',
  typescript: 'const n: number = 6 * 7;\nconsole.log(n);\n',
  bash: "uname -a\n",
};

/** Run runs a program in a new sandbox. */
export default function Run({ who }: { who: Whoami }) {
  const [language, setLanguage] = useState<Language>("python");
  const [code, setCode] = useState(samples.python!);
  const [args, setArgs] = useState("");
  const [provider, setProvider] = useState<string | null>(null);
  const [output, setOutput] = useState("");
  const [outcome, setOutcome] = useState<Outcome>();
  const [error, setError] = useState<unknown>();
  const running = useRef<AbortController | null>(null);
  const [busy, setBusy] = useState(false);
  const providers = useQuery({
    queryKey: ["providers"],
    queryFn: ({ signal }) => get<wire.Providers>("/v1/providers", signal),
    enabled: may(who, "operator"),
  });

  const run = async () => {
    if (busy) return;
    const abort = new AbortController();
    running.current = abort;
    setBusy(true);
    setOutput("");
    setOutcome(undefined);
    setError(undefined);
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }; // one for each stream: output of the other may arrive between the bytes of a character
    try {
      const body: wire.RunRequest & { stream: true } = {
        language,
        code,
        stream: true,
        arguments: args.trim() ? JSON.parse(args) : undefined,
        placement: provider ? { provider, only: true } : undefined,
      };
      for await (const e of events<wire.RunAnswerEvent>("POST", "/v1/run", body, abort.signal)) {
        if (e.event === "stdout" || e.event === "stderr") {
          const said = decoders[e.event].decode(bytesOf(e), { stream: true });
          setOutput((o) => (o + said).slice(-200_000));
        }
        if (e.event === "result") setOutcome(e);
      }
    } catch (e) {
      if (!abort.signal.aborted) setError(e);
    }
    setBusy(false);
  };

  return (
    <>
      <Heading title="Run">
        <Select
          aria-label="Language"
          data={Object.keys(samples) as Language[]}
          value={language}
          allowDeselect={false}
          onChange={(l) => {
            if (code === samples[language]) setCode(samples[l!]!);
            setLanguage(l!);
          }}
        />
        {providers.data && (
          <Select
            aria-label="Provider"
            placeholder="as routed"
            clearable
            data={providers.data.providers.filter((p) => p.configured).map((p) => p.id)}
            value={provider}
            onChange={setProvider}
          />
        )}
        {busy ? (
          <Button color="red" onClick={() => (running.current?.abort(), setBusy(false))}>
            Stop
          </Button>
        ) : (
          <Button onClick={run}>Run</Button>
        )}
      </Heading>
      <Stack>
        <Editor value={code} language={language} onChange={setCode} onSubmit={run} />
        <Textarea label="Arguments of main, as JSON" placeholder='{"name": "World"}' autosize value={args} onChange={(e) => setArgs(e.currentTarget.value)} />
        <Text size="xs" c="dimmed">
          <Kbd>Ctrl</Kbd> + <Kbd>Enter</Kbd> runs it
        </Text>
        {error !== undefined && <Problem error={error} />}
        {(output || busy) && (
          <div data-testid="output">
            <Output>{output || "…"}</Output>
          </div>
        )}
        {outcome && <Ended outcome={outcome} />}
      </Stack>
    </>
  );
}

function Ended({ outcome: o }: { outcome: Outcome }) {
  return (
    <Stack gap="xs" data-testid="outcome">
      <Group gap="xs">
        <Badge variant="light" color={o.exit_code === 0 && !o.error ? "green" : "red"}>exit {o.exit_code}</Badge>
        <Badge variant="light">{o.duration_ms.toFixed(1)} ms</Badge>
        {o.pool && <Badge variant="light">pool {o.pool}</Badge>}
        {o.route && (
          <Badge variant="light" tt="none">
            {o.route.provider}: {o.route.reason}
          </Badge>
        )}
        <Text size="xs" c="dimmed">
          {o.sandbox}
        </Text>
      </Group>
      {o.error && (
        <Alert color="red" title={[o.error.code, o.error.name].filter(Boolean).join(" ")}>
          <Output>{o.error.traceback || o.error.message}</Output>
          {o.error.hint}
        </Alert>
      )}
      {o.has_result && <Output>{JSON.stringify(o.result, null, 2)}</Output>}
      {o.artifacts.map((a) => (
        <Button key={a.path} component="a" variant="default" size="compact-sm" download={a.path} href={`data:application/octet-stream;base64,${a.content_b64}`}>
          {a.path} ({a.size} bytes)
        </Button>
      ))}
    </Stack>
  );
}
