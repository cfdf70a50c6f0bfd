import { createTheme, type CSSVariablesResolver } from "@mantine/core";

export const theme = createTheme({
  primaryColor: "blue",
  primaryShade: 8,
  defaultRadius: "md",
  fontFamily: "system-ui, sans-serif",
  components: {
    // The page has one banner, and the header of a dialog is not one.
    Modal: { defaultProps: { closeButtonProps: { "aria-label": "Close" }, attributes: { header: { role: "none" } } } },
    Drawer: { defaultProps: { closeButtonProps: { "aria-label": "Close" }, attributes: { header: { role: "none" } } } },
    Badge: { defaultProps: { tt: "none" } },
    Notification: { defaultProps: { closeButtonProps: { "aria-label": "Dismiss" } } },
  },
  headings: { sizes: { h1: { fontSize: "1.35rem" }, h2: { fontSize: "1.05rem" }, h3: { fontSize: "0.95rem" } } },
});

/** readable replaces the colors of the components whose contrast is below 4.5 to 1. */
export const readable: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#57606a",
    "--mantine-color-placeholder": "#6a737d",
    "--mantine-color-anchor": "#0f5fae",
    "--mantine-color-error": "#b42318",
    "--mantine-color-default-border": "#d8dde3",
    "--mantine-color-blue-light-color": "#0c4a86",
    "--mantine-color-green-light-color": "#1a5e2a",
    "--mantine-color-orange-light-color": "#8f3300",
    "--mantine-color-yellow-light-color": "#6b4700",
    "--mantine-color-red-light-color": "#9b1c1c",
    "--mantine-color-violet-light-color": "#4c2fa8",
    "--mantine-color-gray-light-color": "#343a40",
  },
  dark: {
    "--mantine-color-dimmed": "#a9adb3",
    "--mantine-color-placeholder": "#9498a0",
    "--mantine-color-anchor": "#74b4f5",
    "--mantine-color-error": "#ff8787",
  },
});
