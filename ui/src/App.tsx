import { ActionIcon, AppShell, Badge, Burger, Button, Center, Group, Loader, NavLink, Text, Tooltip, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useDisclosure, useHotkeys } from "@mantine/hooks";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ComponentType, lazy, Suspense, useEffect } from "react";
import { Route, Router, Switch, useLocation } from "wouter";
import { ApiError, call, get, setCSRF } from "./api";
import { Login } from "./Login";
import { may, type Role, type Whoami } from "./nouns";
import { Empty, Problem } from "./parts";

interface Page {
  path: string;
  title: string;
  key: string;
  least: Role;
  page: ComponentType<{ who: Whoami }>;
}

// The pages, and who may see them. The server decides; this only spares people
// what they would be refused.
const pages: Page[] = [
  { path: "/", title: "Run", key: "r", least: "member", page: lazy(() => import("./pages/Run")) },
  { path: "/sandboxes", title: "Sandboxes", key: "s", least: "viewer", page: lazy(() => import("./pages/Sandboxes")) },
  { path: "/images", title: "Images & templates", key: "i", least: "viewer", page: lazy(() => import("./pages/Images")) },
  { path: "/workspaces", title: "Workspaces", key: "w", least: "viewer", page: lazy(() => import("./pages/Workspaces")) },
  { path: "/secrets", title: "Secrets", key: "e", least: "member", page: lazy(() => import("./pages/Secrets")) },
  { path: "/usage", title: "Usage", key: "u", least: "admin", page: lazy(() => import("./pages/Usage")) },
  { path: "/keys", title: "Keys", key: "k", least: "admin", page: lazy(() => import("./pages/Keys")) },
  { path: "/audit", title: "Audit", key: "a", least: "admin", page: lazy(() => import("./pages/Audit")) },
  { path: "/tenants", title: "Tenants", key: "t", least: "operator", page: lazy(() => import("./pages/Tenants")) },
  { path: "/providers", title: "Providers", key: "p", least: "operator", page: lazy(() => import("./pages/Providers")) },
  { path: "/host", title: "Pool & host", key: "h", least: "operator", page: lazy(() => import("./pages/Host")) },
];

export function App() {
  const who = useQuery({ queryKey: ["whoami"], queryFn: ({ signal }) => get<Whoami>("/v1/auth/whoami", signal), refetchInterval: 60_000 });
  useEffect(() => setCSRF(who.data?.csrf ?? ""), [who.data]);
  if (who.isPending) {
    return (
      <Center h="100vh">
        <Loader aria-label="Loading" />
      </Center>
    );
  }
  if (who.error instanceof ApiError && who.error.status === 401) return <Login onDone={() => who.refetch()} />;
  if (!who.data) return <Problem error={who.error} />;
  return (
    <Router base="/console">
      <Shell who={who.data} />
    </Router>
  );
}

function Shell({ who }: { who: Whoami }) {
  const [open, { toggle, close }] = useDisclosure();
  const { toggleColorScheme } = useMantineColorScheme();
  const dark = useComputedColorScheme() === "dark";
  const [at, go] = useLocation();
  const client = useQueryClient();
  const mine = pages.filter((p) => may(who, p.least));
  useHotkeys(mine.map((p) => [`shift+${p.key}`, () => go(p.path)]));
  const logout = async () => {
    await call("POST", "/v1/auth/logout");
    client.clear();
    location.assign("/console/");
  };
  return (
    <AppShell header={{ height: 52 }} navbar={{ width: 235, breakpoint: "sm", collapsed: { mobile: !open } }} padding="md">
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between">
          <Group gap="xs">
            <Burger opened={open} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Menu" />
            <Text fw={700}>Brig</Text>
            <Badge variant="light" tt="none">{who.tenant}</Badge>
          </Group>
          <Group gap="xs">
            <Text size="sm" c="dimmed" data-testid="who">
              {who.email || who.name} · {who.role}
            </Text>
            <Tooltip label="Light or dark">
              <ActionIcon variant="subtle" onClick={() => toggleColorScheme()} aria-label="Light or dark">
                {dark ? "☀" : "☾"}
              </ActionIcon>
            </Tooltip>
            <Button size="compact-sm" variant="subtle" onClick={logout}>
              Log out
            </Button>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs">
        {mine.map((p) => (
          <NavLink
            key={p.path}
            label={p.title}
            active={p.path === "/" ? at === "/" : at.startsWith(p.path)}
            href={`/console${p.path}`}
            rightSection={
              <Text size="xs" c="dimmed" visibleFrom="sm">
                ⇧{p.key.toUpperCase()}
              </Text>
            }
            onClick={(e) => {
              e.preventDefault();
              go(p.path);
              close();
            }}
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main>
        <Suspense fallback={<Loader aria-label="Loading" />}>
          <Switch>
            {mine.map((p) => (
              <Route key={p.path} path={p.path === "/" ? "/" : `${p.path}/*?`}>
                <p.page who={who} />
              </Route>
            ))}
            <Route>
              <Empty>There is nothing here.</Empty>
            </Route>
          </Switch>
        </Suspense>
      </AppShell.Main>
    </AppShell>
  );
}
