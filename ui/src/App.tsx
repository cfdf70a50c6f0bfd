import { ActionIcon, AppShell, Badge, Burger, Button, Center, Group, Kbd, Loader, Modal, NavLink, ScrollArea, Table, Text, Tooltip, VisuallyHidden, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useDisclosure, useDocumentTitle, useHotkeys } from "@mantine/hooks";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ComponentType, lazy, Suspense } from "react";
import { Route, Router, Switch, useLocation } from "wouter";
import { ApiError, call, forget, get, hasToken } from "./api";
import { Icon, type IconName } from "./Icon";
import { Login } from "./Login";
import { may, type Role, type Whoami } from "./nouns";
import { Empty, Go, Heading, Problem } from "./parts";

interface Page {
  path: string;
  title: string;
  key: string;
  icon: IconName;
  least: Role;
  page: ComponentType<{ who: Whoami }>;
}

// The pages in groups, each with the least role that may see it. The server enforces
// the roles; this only hides pages whose requests it would reject.
const groups: [string, Page[]][] = [
  [
    "Work",
    [
      { path: "/", title: "Overview", key: "o", icon: "overview", least: "viewer", page: lazy(() => import("./pages/Overview")) },
      { path: "/run", title: "Run", key: "r", icon: "run", least: "member", page: lazy(() => import("./pages/Run")) },
      { path: "/runs", title: "Runs", key: "l", icon: "runs", least: "viewer", page: lazy(() => import("./pages/Runs")) },
      { path: "/sandboxes", title: "Sandboxes", key: "s", icon: "sandbox", least: "viewer", page: lazy(() => import("./pages/Sandboxes")) },
    ],
  ],
  [
    "Resources",
    [
      { path: "/images", title: "Images & templates", key: "i", icon: "image", least: "viewer", page: lazy(() => import("./pages/Images")) },
      { path: "/workspaces", title: "Workspaces", key: "w", icon: "workspace", least: "viewer", page: lazy(() => import("./pages/Workspaces")) },
      { path: "/secrets", title: "Secrets", key: "e", icon: "secret", least: "member", page: lazy(() => import("./pages/Secrets")) },
    ],
  ],
  [
    "Account",
    [
      { path: "/usage", title: "Usage", key: "u", icon: "usage", least: "admin", page: lazy(() => import("./pages/Usage")) },
      { path: "/keys", title: "Keys", key: "k", icon: "key", least: "admin", page: lazy(() => import("./pages/Keys")) },
      { path: "/audit", title: "Audit", key: "a", icon: "audit", least: "admin", page: lazy(() => import("./pages/Audit")) },
    ],
  ],
  [
    "Server",
    [
      { path: "/tenants", title: "Tenants", key: "t", icon: "tenant", least: "operator", page: lazy(() => import("./pages/Tenants")) },
      { path: "/providers", title: "Providers", key: "p", icon: "provider", least: "operator", page: lazy(() => import("./pages/Providers")) },
      { path: "/host", title: "Pool & host", key: "h", icon: "host", least: "operator", page: lazy(() => import("./pages/Host")) },
    ],
  ],
];

export function App() {
  const who = useQuery({ queryKey: ["whoami"], queryFn: ({ signal }) => get<Whoami>("/v1/auth/whoami", signal), refetchInterval: 60_000 });
  if (who.isPending) {
    return (
      <Center component="main" h="100vh">
        <Waiting />
      </Center>
    );
  }
  if ((who.error instanceof ApiError && who.error.status === 401) || (who.data && !hasToken())) return <Login onDone={() => who.refetch()} />;
  if (!who.data)
    return (
      <Center component="main" h="100vh" p="md">
        <Problem error={who.error} />
      </Center>
    );
  return (
    <Router base="/console">
      <Shell who={who.data} />
    </Router>
  );
}

/** Waiting is shown while a page loads. */
function Waiting() {
  return (
    <>
      <VisuallyHidden>
        <h1>Brig</h1>
      </VisuallyHidden>
      <Loader aria-label="Loading" role="status" />
    </>
  );
}

function Shell({ who }: { who: Whoami }) {
  const [open, { toggle, close }] = useDisclosure();
  const [help, { open: showHelp, close: closeHelp }] = useDisclosure();
  const { toggleColorScheme } = useMantineColorScheme();
  const dark = useComputedColorScheme() === "dark";
  const [at, go] = useLocation();
  const client = useQueryClient();
  const mine = groups.map(([title, pages]) => [title, pages.filter((p) => may(who, p.least))] as const).filter(([, pages]) => pages.length > 0);
  const all = mine.flatMap(([, pages]) => pages);
  const here = (p: Page) => at === p.path || (p.path !== "/" && at.startsWith(`${p.path}/`));
  const current = all.find(here);
  useDocumentTitle(current ? `${current.title} · Brig` : "Brig");
  useHotkeys([...all.map((p): [string, () => void] => [`shift+${p.key}`, () => go(p.path)]), ["shift+?", showHelp], ["?", showHelp]]);
  const logout = async () => {
    await call("POST", "/v1/auth/logout");
    forget();
    client.clear();
    location.assign("/console/");
  };
  return (
    <AppShell header={{ height: 50 }} navbar={{ width: 215, breakpoint: "sm", collapsed: { mobile: !open } }} padding={{ base: "sm", sm: "lg" }}>
      <AppShell.Header>
        <Group h="100%" px="sm" justify="space-between" wrap="nowrap" gap="xs">
          <Group gap="xs" wrap="nowrap" miw={0}>
            <Burger opened={open} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Menu" aria-expanded={open} />
            <img src="/console/icon.svg" alt="" width={22} height={22} />
            <Text fw={700} visibleFrom="xs">
              Brig
            </Text>
            <Badge variant="light" tt="none" maw={160}>
              {who.tenant}
            </Badge>
          </Group>
          <Group gap={4} wrap="nowrap" miw={0}>
            <Text size="sm" c="dimmed" data-testid="who" truncate maw={{ base: 130, sm: 320 }} title={`${who.email || who.name} · ${who.role}`}>
              {who.email || who.name} · {who.role}
            </Text>
            <Tooltip label="Shortcuts">
              <ActionIcon variant="subtle" color="gray" onClick={showHelp} aria-label="Shortcuts" visibleFrom="sm">
                ?
              </ActionIcon>
            </Tooltip>
            <Tooltip label="Light or dark">
              <ActionIcon variant="subtle" color="gray" onClick={() => toggleColorScheme()} aria-label="Light or dark">
                {dark ? "☀" : "☾"}
              </ActionIcon>
            </Tooltip>
            <Button size="compact-sm" variant="subtle" color="gray" miw="max-content" onClick={logout}>
              Log out
            </Button>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label="Pages">
        <AppShell.Section grow component={ScrollArea} type="auto">
          {mine.map(([title, pages]) => (
            <div key={title} role="group" aria-label={title}>
              <Text size="xs" fw={600} c="dimmed" px="sm" pt="sm" pb={2}>
                {title}
              </Text>
              {pages.map((p) => (
                <NavLink
                  key={p.path}
                  label={p.title}
                  leftSection={<Icon name={p.icon} />}
                  active={current === p}
                  aria-current={current === p ? "page" : undefined}
                  href={`/console${p.path}`}
                  py={5}
                  style={{ borderRadius: 6 }}
                  onClick={(e) => {
                    e.preventDefault();
                    go(p.path);
                    close();
                  }}
                />
              ))}
            </div>
          ))}
        </AppShell.Section>
        <AppShell.Section pt="xs">
          <NavLink label="Documentation" leftSection={<Icon name="docs" />} href="/docs/" target="_blank" py={5} style={{ borderRadius: 6 }} />
        </AppShell.Section>
      </AppShell.Navbar>
      <AppShell.Main>
        <Suspense fallback={<Waiting />}>
          <Switch>
            {all.map((p) => (
              <Route key={p.path} path={p.path === "/" ? "/" : `${p.path}/*?`}>
                <p.page who={who} />
              </Route>
            ))}
            <Route>
              <Heading title="Not found" />
              <Empty next={<Text ta="center"><Go to="/">Open the overview</Go></Text>}>There is no page at this address, or your role may not see it.</Empty>
            </Route>
          </Switch>
        </Suspense>
      </AppShell.Main>
      <Modal opened={help} onClose={closeHelp} title="Shortcuts">
        <Table withRowBorders={false} verticalSpacing={3}>
          <Table.Tbody>
            {[...all.map((p) => [p.title, `Shift+${p.key.toUpperCase()}`]), ["Search the list", "/"], ["Run the program", "Ctrl+Enter"], ["This help", "?"]].map(([what, keys]) => (
              <Table.Tr key={what}>
                <Table.Td>{what}</Table.Td>
                <Table.Td ta="right">
                  <Kbd>{keys}</Kbd>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Modal>
    </AppShell>
  );
}
