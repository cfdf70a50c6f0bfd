import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import { useEffect, useRef } from "react";
import { bytesOf, call, events, path } from "./api";

type Event = { event: string; data?: string; data_b64?: string };

/** Terminal is a shell in a sandbox, on a real terminal, until it is closed. */
export function Terminal({ sandbox }: { sandbox: string }) {
  const at = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const term = new Xterm({ cursorBlink: true, fontSize: 13, scrollback: 5000 });
    const fit = new FitAddon();
    term.loadAddon(fit);
    term.open(at.current!);
    fit.fit();
    term.focus();
    const abort = new AbortController();
    const base = `/v1/sandboxes/${path(sandbox)}/processes`;
    let pid = 0;
    let writing = Promise.resolve();
    const say = (e: unknown) => {
      if (!abort.signal.aborted) term.write(`\r\n[${e instanceof Error ? e.message : e}]\r\n`);
    };
    // What is typed arrives in the order in which it was.
    const type = term.onData((data) => {
      if (pid) writing = writing.then(() => call<void>("POST", `${base}/${pid}/input`, { data }, abort.signal)).catch(say);
    });
    const size = term.onResize(({ cols, rows }) => {
      if (pid) call("POST", `${base}/${pid}/resize`, { columns: cols, rows }, abort.signal).catch(say);
    });
    const watch = new ResizeObserver(() => fit.fit());
    watch.observe(at.current!);
    const run = async () => {
      const p = await call<{ pid: number }>("POST", base, {
        shell: 'exec "$(command -v bash || echo sh)" -i',
        env: { TERM: "xterm-256color" },
        terminal: { columns: term.cols, rows: term.rows },
        tag: "console",
      });
      pid = p.pid;
      for await (const e of events<Event>("GET", `${base}/${pid}/output`, undefined, abort.signal)) {
        if (e.event === "stdout" || e.event === "stderr") term.write(bytesOf(e));
      }
      say("the shell has ended");
      pid = 0;
    };
    run().catch(say);
    return () => {
      if (pid) call("POST", `${base}/${pid}/signal`, { signal: "SIGKILL" }).catch(() => undefined); // it may have ended
      abort.abort();
      watch.disconnect();
      type.dispose();
      size.dispose();
      term.dispose();
    };
  }, [sandbox]);
  return (
    <div style={{ background: "#000", padding: 6, borderRadius: 6 }}>
      <div ref={at} data-testid="terminal" style={{ height: 420 }} />
    </div>
  );
}
