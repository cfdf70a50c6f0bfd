import "@xterm/xterm/css/xterm.css";
import { Button, Group, Text } from "@mantine/core";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import { useEffect, useRef, useState } from "react";
import { bytesOf, call, events, get, path } from "./api";
import type * as wire from "./wire";

// The tag of this browser tab's shells. A shell is found by it again when the page
// is opened anew; other tabs have other shells.
const item = "brig_shell";
function tag(): string {
  let t = sessionStorage.getItem(item);
  if (!t) {
    t = `console-${Array.from(crypto.getRandomValues(new Uint8Array(6)), (x) => x.toString(16).padStart(2, "0")).join("")}`;
    sessionStorage.setItem(item, t);
  }
  return t;
}

/** Terminal is a shell in a sandbox, on a real terminal. The shell stays until
 * the user ends it; a terminal that is opened later continues it. */
export function Terminal({ sandbox, shown }: { sandbox: string; shown: boolean }) {
  const [turn, setTurn] = useState(0);
  const [ended, setEnded] = useState(false);
  const pid = useRef(0);
  const base = `/v1/sandboxes/${path(sandbox)}/processes`;
  const end = () => pid.current && call("POST", `${base}/${pid.current}/signal`, { signal: "SIGKILL" } satisfies wire.SignalRequest).catch(() => undefined); // it may have ended
  return (
    <>
      <Group justify="space-between" mb="xs">
        <Text size="xs" c="dimmed">
          The shell continues while you are elsewhere. Press Ctrl+Shift+Esc to leave the terminal with the keyboard.
        </Text>
        {ended ? (
          <Button
            size="compact-sm"
            onClick={() => {
              setEnded(false);
              setTurn(turn + 1);
            }}
          >
            New shell
          </Button>
        ) : (
          <Button size="compact-sm" variant="default" onClick={end} id="end-shell">
            End shell
          </Button>
        )}
      </Group>
      <Screen key={turn} base={base} pid={pid} shown={shown} onEnd={() => setEnded(true)} />
    </>
  );
}

function Screen({ base, pid, shown, onEnd }: { base: string; pid: { current: number }; shown: boolean; onEnd: () => void }) {
  const at = useRef<HTMLDivElement>(null);
  const term = useRef<Xterm>(null);
  const visible = useRef(shown);
  visible.current = shown;
  useEffect(() => {
    const xterm = new Xterm({ cursorBlink: true, fontSize: 13, scrollback: 5000, screenReaderMode: true });
    term.current = xterm;
    const fit = new FitAddon();
    xterm.loadAddon(fit);
    xterm.open(at.current!);
    fit.fit();
    xterm.attachCustomKeyEventHandler((e) => {
      if (e.key !== "Escape" || !e.ctrlKey || !e.shiftKey) return true;
      document.getElementById("end-shell")?.focus();
      return false;
    });
    const abort = new AbortController();
    let writing = Promise.resolve();
    const say = (e: unknown) => {
      if (!abort.signal.aborted) xterm.write(`\r\n[${e instanceof Error ? e.message : e}]\r\n`);
    };
    // Keys arrive in the order in which they were pressed.
    const type = xterm.onData((data) => {
      if (pid.current) writing = writing.then(() => call<void>("POST", `${base}/${pid.current}/input`, { data } satisfies wire.ProcessInput, abort.signal)).catch(say);
    });
    const resize = () => pid.current && call("POST", `${base}/${pid.current}/resize`, { columns: xterm.cols, rows: xterm.rows } satisfies wire.Terminal, abort.signal).catch(say);
    const size = xterm.onResize(resize);
    const watch = new ResizeObserver(() => at.current?.clientWidth && fit.fit()); // a terminal that is not shown has no size
    watch.observe(at.current!);
    const run = async () => {
      pid.current = 0;
      const { processes } = await get<wire.Processes>(base, abort.signal);
      const found = processes.find((p) => p.running && p.tag === tag());
      if (found) {
        pid.current = found.pid;
        resize();
      } else {
        const p = await call<wire.Process>("POST", base, {
          shell: 'exec "$(command -v bash || echo sh)" -i',
          env: { TERM: "xterm-256color" },
          terminal: { columns: xterm.cols, rows: xterm.rows },
          tag: tag(),
        } satisfies wire.ProcessRequest);
        if (abort.signal.aborted) return;
        pid.current = p.pid;
      }
      if (visible.current) xterm.focus(); // again: a page that was left may have taken the focus back
      for await (const e of events<wire.ResultEvent>("GET", `${base}/${pid.current}/output`, undefined, abort.signal)) {
        if (e.event === "stdout" || e.event === "stderr") xterm.write(bytesOf(e));
      }
      say("the shell has ended");
      pid.current = 0;
      onEnd();
    };
    run().catch(say);
    return () => {
      abort.abort();
      watch.disconnect();
      type.dispose();
      size.dispose();
      xterm.dispose();
      term.current = null;
    };
    // The shell belongs to the sandbox; onEnd only reports its end.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [base]);
  useEffect(() => {
    if (shown) term.current?.focus();
  }, [shown]);
  return (
    <div style={{ background: "#000", padding: 6, borderRadius: 6 }}>
      <div ref={at} data-testid="terminal" style={{ height: "min(60vh, 480px)" }} />
    </div>
  );
}
