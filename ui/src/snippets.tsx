import { Alert, Box, Button, Code, CopyButton, Group, Paper, Tabs, Text, Title } from "@mantine/core";
import { useState } from "react";
import { call } from "./api";
import { may, type Whoami } from "./nouns";
import type * as wire from "./wire";
import { useDo } from "./parts";

type Kind = "brig" | "e2b";

const clients: [name: string, kind: Kind, text: (url: string, key: string) => string][] = [
  [
    "curl",
    "brig",
    (url, key) => `curl ${url}/v1/run \\
  -H "Authorization: Bearer ${key}" \\
  -H 'Content-Type: application/json' \\
  -d '{"language": "python", "code": "print(6*7)"}'`,
  ],
  [
    "Python",
    "brig",
    (url, key) => `# pip install the wheel of this release: brig-*.whl
# export BRIG_URL=${url} BRIG_API_KEY=${key}
from brig.sync import SandboxClient

with SandboxClient() as client:
    print(client.run_python("print(6 * 7)", image=None).stdout)`,
  ],
  [
    "TypeScript",
    "brig",
    (url, key) => `// npm install the package of this release: brig-*.tgz
// export BRIG_URL=${url} BRIG_API_KEY=${key}
import { Brig } from 'brig'

const { result } = await new Brig().run('def main(n): return n * 7', { arguments: { n: 6 } })
console.log(result)`,
  ],
  [
    "E2B",
    "e2b",
    (url, key) => `// npm install e2b
// export E2B_API_URL=${url} E2B_SANDBOX_URL=${url} E2B_API_KEY=${key}
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create()
console.log((await sandbox.commands.run('echo hi')).stdout)
await sandbox.kill()`,
  ],
  [
    "MCP",
    "brig",
    (url, key) => `{
  "mcpServers": {
    "brig": {
      "url": "${url}/mcp",
      "headers": { "Authorization": "Bearer ${key}" }
    }
  }
}`,
  ],
];

/** Connect shows how to use this server from a program, with its address and a key. */
export function Connect({ who, title = "Use it from your code" }: { who: Whoami; title?: string }) {
  const [keys, setKeys] = useState<Partial<Record<Kind, string>>>({});
  const make = useDo(
    async (kind: Kind) => {
      const made = await call<wire.NewKey>("POST", "/v1/keys", { name: `quick start ${new Date().toISOString().slice(0, 10)}`, role: "member", kind, ttl_ms: 30 * 86_400_000 } satisfies wire.KeyRequest);
      setKeys((k) => ({ ...k, [kind]: made.key }));
    },
    "The key was created. It expires in 30 days",
  );
  return (
    <Paper withBorder p="md" data-testid="connect">
      <Title order={2} mb="xs">
        {title}
      </Title>
      <Tabs defaultValue="curl" keepMounted={false}>
        <Tabs.List mb="sm">
          {clients.map(([name]) => (
            <Tabs.Tab key={name} value={name}>
              {name}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        {clients.map(([name, kind, text]) => {
          const key = keys[kind];
          const shown = text(location.origin, key ?? (kind === "e2b" ? "$E2B_API_KEY" : "$BRIG_API_KEY"));
          return (
            <Tabs.Panel key={name} value={name}>
              <Box pos="relative">
                <Code block tabIndex={0} aria-label={`${name} example`} style={{ overflowX: "auto" }}>
                  {shown}
                </Code>
              </Box>
              <Group mt="xs" gap="xs">
                <CopyButton value={shown}>
                  {({ copied, copy }) => (
                    <Button size="compact-sm" variant="light" onClick={copy}>
                      {copied ? "Copied" : "Copy"}
                    </Button>
                  )}
                </CopyButton>
                {!key && may(who, "admin") && (
                  <Button size="compact-sm" variant="default" loading={make.isPending} onClick={() => make.mutate(kind)}>
                    Create a key and insert it
                  </Button>
                )}
                {!key && !may(who, "admin") && (
                  <Text size="xs" c="dimmed">
                    Ask an administrator of {who.tenant} for a key.
                  </Text>
                )}
              </Group>
              {key && (
                <Alert color="yellow" p="xs" mt="xs">
                  This is the only time that the key is shown. You can revoke it on the page Keys.
                </Alert>
              )}
            </Tabs.Panel>
          );
        })}
      </Tabs>
    </Paper>
  );
}
