// Icons of 16 by 16 pixels, drawn with lines.
const shapes = {
  overview: "M2 2h5v5H2zM9 2h5v3H9zM9 7h5v7H9zM2 9h5v5H2z",
  run: "M4 2.5v11l9-5.5z",
  runs: "M2 4h12M2 8h12M2 12h7",
  sandbox: "M8 1.5 14 5v6l-6 3.5L2 11V5zM2 5l6 3.5L14 5M8 8.5v6",
  image: "M2 4l6-2.5L14 4 8 6.5zM2 8l6 2.5L14 8M2 12l6 2.5L14 12",
  workspace: "M1.5 4h5l1.5 2h6.5v7.5h-13z",
  secret: "M4 7h8v7H4zM5.5 7V5a2.5 2.5 0 0 1 5 0v2",
  usage: "M2 14V8M6 14V3M10 14V6M14 14V10",
  key: "M10.5 2a3.5 3.5 0 1 1-3 5.3L2 12.8V14h2.5v-1.7H6.2l1.8-1.8a3.5 3.5 0 0 1-.5-3.2",
  audit: "M3 1.5h7l3 3v10H3zM10 1.5v3h3M5.5 8h5M5.5 11h5",
  tenant: "M6 7a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 14a4.5 4.5 0 0 1 9 0M11 2.5a2.3 2.3 0 0 1 0 4.2M12.5 9.8A4.5 4.5 0 0 1 14.5 14",
  provider: "M4.5 12.5a3 3 0 0 1-.3-6 4 4 0 0 1 7.6 0 3 3 0 0 1-.3 6z",
  host: "M2 2.5h12v4.5H2zM2 9h12v4.5H2zM4.5 4.7h.1M4.5 11.2h.1",
  docs: "M8 4C6.5 2.8 4.5 2.5 2 2.5v10c2.5 0 4.5.3 6 1.5 1.5-1.2 3.5-1.5 6-1.5v-10c-2.5 0-4.5.3-6 1.5zM8 4v10",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
} as const;

export type IconName = keyof typeof shapes;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg width="16" height="16" viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.3" strokeLinejoin="round" strokeLinecap="round" aria-hidden="true">
      <path d={shapes[name]} />
    </svg>
  );
}
