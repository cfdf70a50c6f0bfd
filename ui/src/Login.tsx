import { Anchor, Button, Center, Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { login } from "./api";
import { Problem } from "./parts";

/** Login begins a session with a key, or at the identity provider. */
export function Login({ onDone }: { onDone: () => void }) {
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
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
    <Center h="100vh" p="md">
      <Paper withBorder p="xl" w={400}>
        <form onSubmit={submit}>
          <Stack>
            <Title order={3}>Brig</Title>
            <PasswordInput label="API key" value={key} onChange={(e) => setKey(e.currentTarget.value)} autoFocus autoComplete="off" required />
            {error !== undefined && <Problem error={error} />}
            <Button type="submit" loading={busy}>
              Log in
            </Button>
            <Anchor href="/v1/auth/login?next=/console/" size="sm">
              Sign in with the identity provider
            </Anchor>
            <Text size="xs" c="dimmed">
              The key is exchanged for a session that this page cannot read, and forgotten. brig key create makes one.
            </Text>
          </Stack>
        </form>
      </Paper>
    </Center>
  );
}
