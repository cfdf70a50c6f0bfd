import "uplot/dist/uPlot.min.css";
import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";

/** Chart shows a figure by day. */
export function Chart({ title, days, values, format }: { title: string; days: string[]; values: number[]; format: (n: number) => string }) {
  const at = useRef<HTMLDivElement>(null);
  const dark = useComputedColorScheme() === "dark";
  useEffect(() => {
    const el = at.current!;
    const line = dark ? "#868e96" : "#495057";
    const axis = { stroke: line, grid: { stroke: dark ? "#373a40" : "#e9ecef" } };
    const plot = new uPlot(
      {
        title,
        width: el.clientWidth,
        height: 190,
        legend: { show: false },
        series: [{}, { stroke: "#228be6", fill: "#228be633", width: 2, points: { show: true } }],
        axes: [axis, { ...axis, size: 80, values: (_, ticks) => ticks.map(format) }],
        scales: { y: { range: (_, __, most) => [0, most || 1] } },
      },
      [days.map((d) => Date.parse(d) / 1000), values],
      el,
    );
    const watch = new ResizeObserver(() => plot.setSize({ width: el.clientWidth, height: 190 }));
    watch.observe(el);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [title, days, values, format, dark]);
  return <div ref={at} role="img" aria-label={title} />;
}
