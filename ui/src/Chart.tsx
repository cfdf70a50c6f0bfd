import "uplot/dist/uPlot.min.css";
import { Group, Paper, Text, useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";

interface Props {
  title: string;
  now?: string; // the figure to show beside the title
  times: number[]; // seconds
  values: number[][]; // one list for each line
  names?: string[]; // of the lines, if there are several
  format: (n: number) => string;
  most?: number; // the value at the top
  height?: number;
  dots?: boolean;
  binary?: boolean; // the figures are bytes
  seconds?: number; // of time to show, up to the last figure; default: all
}

const powers = Array.from({ length: 45 }, (_, i) => 2 ** i);

const clock = (t: number) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

const strokes = ["#228be6", "#e8590c"];

/** Chart shows values over time. */
export function Chart({ title, now, times, values, names, format, most, height = 160, dots, binary, seconds }: Props) {
  const at = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const dark = useComputedColorScheme() === "dark";
  const lines = values.length;
  const shown = useRef({ times, values, format, most });
  shown.current = { times, values, format, most };
  useEffect(() => {
    const el = at.current!;
    const axis = { stroke: dark ? "#a9adb3" : "#57606a", grid: { stroke: dark ? "#373a40" : "#e9ecef", width: 1 }, font: "11px system-ui", ticks: { show: false } };
    const p = new uPlot(
      {
        width: el.clientWidth,
        height,
        legend: { show: false },
        cursor: { y: false },
        series: [{}, ...Array.from({ length: lines }, (_, i) => ({ stroke: strokes[i], fill: lines === 1 ? "#228be626" : undefined, width: 1.5, points: { show: !!dots, size: 5 } }))],
        axes: [{ ...axis, size: 26, values: seconds ? (_: uPlot, ticks: number[]) => ticks.map(clock) : [[86_400, "{M}/{D}", null, null, null, null, null, null, 0]] }, { ...axis, size: 66, incrs: binary ? powers : undefined, values: (_, ticks) => ticks.map((n) => shown.current.format(n)) }],
        scales: { x: { range: (_, low, high) => (seconds ? [high - seconds, high] : [low, high]) }, y: { range: (_, __, top) => [0, shown.current.most ?? (top > 0 ? top * 1.1 : 1)] } },
      },
      [shown.current.times, ...shown.current.values] as uPlot.AlignedData,
      el,
    );
    plot.current = p;
    const watch = new ResizeObserver(() => p.setSize({ width: el.clientWidth, height }));
    watch.observe(el);
    return () => {
      watch.disconnect();
      p.destroy();
      plot.current = null;
    };
  }, [lines, height, dots, dark, binary, seconds]);
  useEffect(() => plot.current?.setData([times, ...values] as uPlot.AlignedData), [times, values, most]);
  return (
    <Paper withBorder p="xs">
      <Group justify="space-between" px={4} mb={2} gap="xs">
        <Text size="sm" fw={600}>
          {title}
        </Text>
        <Text size="sm" c="dimmed">
          {now}
          {names?.map((n, i) => (
            <span key={n}>
              {" "}
              <span style={{ color: strokes[i] }} aria-hidden>
                ●
              </span>{" "}
              {n}
            </span>
          ))}
        </Text>
      </Group>
      <div ref={at} role="img" aria-label={now ? `${title}: ${now}` : title} />
    </Paper>
  );
}
