import { Button, Code, Group, Mark, Select, Switch, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { text } from "../../api";
import { Command, Empty, Fetched } from "../../parts";

/** Logs shows the output of a sandbox's programs, with search and follow. */
export function Logs({ base, name }: { base: string; name: string }) {
  const [q, setQ] = useState("");
  const [follow, setFollow] = useState(true);
  const [times, setTimes] = useState(true);
  const [tail, setTail] = useState("1000");
  const logs = useQuery({ queryKey: ["logs", base, tail, times], queryFn: ({ signal }) => text(`${base}/logs?tail=${tail}${times ? "&times=true" : ""}`, signal), refetchInterval: follow ? 1500 : false, placeholderData: (was) => was });
  return (
    <>
      <Group mb="sm" gap="sm">
        <TextInput flex="1 1 200px" maw={360} aria-label="Search the log" placeholder="Search the log" value={q} onChange={(e) => setQ(e.currentTarget.value)} />
        <Select w={130} aria-label="Lines" data={[{ value: "200", label: "200 lines" }, { value: "1000", label: "1,000 lines" }, { value: "10000", label: "10,000 lines" }]} value={tail} allowDeselect={false} onChange={(v) => setTail(v!)} />
        <Switch label="Follow" checked={follow} onChange={(e) => setFollow(e.currentTarget.checked)} />
        <Switch label="Times" checked={times} onChange={(e) => setTimes(e.currentTarget.checked)} />
        <Button component="a" variant="default" size="compact-sm" href={`${base}/logs?tail=0`} download={`${name}.log`}>
          Download
        </Button>
      </Group>
      <Fetched query={logs}>
        {(l) =>
          l ? (
            <Lines text={l} q={q} follow={follow} onScrolled={() => setFollow(false)} />
          ) : (
            <Empty next={<Command>{`brig sandbox exec ${name} -- echo hello\nbrig sandbox logs ${name} --follow`}</Command>}>No output yet. The log has the output of the main program and of commands.</Empty>
          )
        }
      </Fetched>
    </>
  );
}

const most = 2000; // lines on the page at once

function Lines({ text, q, follow, onScrolled }: { text: string; q: string; follow: boolean; onScrolled: () => void }) {
  const box = useRef<HTMLPreElement>(null);
  const all = text.replace(/\n$/, "").split("\n");
  const fit = q ? all.filter((l) => l.toLowerCase().includes(q.toLowerCase())) : all;
  const shown = fit.slice(-most);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, follow, q]);
  return (
    <>
      <Code
        block
        ref={box}
        tabIndex={0}
        data-testid="log"
        mah="60vh"
        style={{ overflow: "auto", whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}
        onWheel={(e) => e.deltaY < 0 && onScrolled()}
      >
        {q ? shown.map((l, i) => <div key={i}>{marked(l, q)}</div>) : shown.join("\n")}
      </Code>
      <Text size="xs" c="dimmed" mt={4} role="status">
        {q ? `${fit.length} of ${all.length} lines match` : `${all.length} lines`}
        {fit.length > most && `; the last ${most} are shown`}
      </Text>
    </>
  );
}

/** marked returns a line with highlighted matches of the search. */
function marked(line: string, q: string): ReactNode[] {
  const out: ReactNode[] = [];
  const low = line.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(q.toLowerCase()); at >= 0; at = low.indexOf(q.toLowerCase(), from)) {
    out.push(line.slice(from, at), <Mark key={at}>{line.slice(at, at + q.length)}</Mark>);
    from = at + q.length;
  }
  return [...out, line.slice(from)];
}
