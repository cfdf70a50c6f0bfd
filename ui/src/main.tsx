import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api";
import { App } from "./App";
import { readable, theme } from "./theme";

const client: QueryClient = new QueryClient({
  // Show the login if the session has ended.
  queryCache: new QueryCache({
    onError: (e, query) => {
      if (e instanceof ApiError && e.status === 401 && query.queryKey[0] !== "whoami") client.invalidateQueries({ queryKey: ["whoami"] });
    },
  }),
  defaultOptions: {
    queries: {
      refetchInterval: 5000,
      staleTime: 1000,
      // Do not retry a request that the server has rejected.
      retry: (n, e) => !(e instanceof ApiError && e.status < 500) && n < 3,
    },
  },
});

createRoot(document.getElementById("root")!).render(
  <MantineProvider theme={theme} cssVariablesResolver={readable} defaultColorScheme="auto">
    <Notifications position="top-right" />
    <QueryClientProvider client={client}>
      <App />
    </QueryClientProvider>
  </MantineProvider>,
);
