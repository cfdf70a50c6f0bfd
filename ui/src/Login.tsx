import { Anchor, Button, Center, Code, Group, Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { get, login } from "./api";
import { Problem } from "./parts";

/** Login begins a session with a key, or at the identity provider. */
export function Login({ onDone }: { onDone: () => void }) {
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const settings = useQuery({ queryKey: ["settings"], queryFn: ({ signal }) => get<{ sign_in: boolean }>("/console/settings.json", signal), refetchInterval: false });
  const submit = async (e: FormEvent) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await login(key.trim());
      onDone();
    } catch (e) {
      setError(e);
    }
    setBusy(false);
  };
  return (
    <Center component="main" h="100vh" p="md">
      <Paper withBorder p="xl" w={400} maw="100%">
        <form onSubmit={submit}>
          <Stack>
            <Group gap="xs">
              <img src="/console/icon.svg" alt="" width={28} height={28} />
              <Title order={1}>Sign in to Brig</Title>
            </Group>
            <PasswordInput label="API key" value={key} onChange={(e) => setKey(e.currentTarget.value)} autoFocus autoComplete="off" required />
            {error !== undefined && <Problem error={error} />}
            <Button type="submit" loading={busy}>
              Log in
            </Button>
            {settings.data?.sign_in && (
              <Anchor href="/v1/auth/login?next=/console/" size="sm">
                Sign in with the identity provider
              </Anchor>
            )}
            <Text size="xs" c="dimmed">
              The server exchanges the key for a session, and the browser does not store it. Create a key with <Code>brig key create</Code>, or use the file <Code>admin.key</Code> in the data folder.
            </Text>
          </Stack>
        </form>
      </Paper>
    </Center>
  );
}
