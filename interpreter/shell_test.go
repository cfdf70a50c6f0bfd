package interpreter_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/provider/providertest"
)

// buildAgent builds the agent and returns the path of its executable.
func buildAgent(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	return providertest.Agent(t)
}

func startBash(t *testing.T, agent string) *driver {
	t.Helper()
	d := startDriver(t, []string{agent, "shell-driver"}, nil)
	if m := d.awaitReady(); m.Flavor != "bash" {
		t.Fatalf("flavor %q", m.Flavor)
	}
	t.Cleanup(func() { // a driver that is killed leaves its directory in /tmp
		d.stdin.Close()
		d.socket.Close()
		stuck := time.AfterFunc(patience, func() { d.cmd.Process.Kill() })
		defer stuck.Stop()
		d.cmd.Wait()
	})
	return d
}

func TestBashCellsKeepState(t *testing.T) {
	d := startBash(t, buildAgent(t))
	if err := os.Mkdir(filepath.Join(d.dir, "it's a sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"FOO": "a'b\nc", "KEPT": "new", "not a name": "x"}
	for _, s := range []step{
		{what: "output", code: "echo out; echo err >&2", out: "out", errout: "err"},
		{what: "define", code: "x=5; alias ll='echo aliased'; declare -A m=([a]=1); f() { echo \"f $1\"; return 4; }; cd /usr; KEPT=old", out: "-", errout: "-"},
		{what: "state", code: "echo $x ${m[a]} $PWD; ll 2", out: "5 1 /usr\naliased 2"},
		{what: "status", code: "f 3", out: "f 3", name: "CommandFailed", message: "exit status 4"},
		{what: "status before the last", code: "false; true"},
		{what: "return", code: "return 7; echo no", out: "-", name: "CommandFailed", message: "exit status 7"},
		{what: "not found", code: "\nnosuchcommand", name: "CommandFailed", message: "exit status 127", errout: "cell-7.sh: line 2: nosuchcommand: command not found"},
		{what: "heredoc", code: "cat <<EOT\na $x '\"\nEOT\necho 'multi\nline'", out: "a 5 '\"\nmulti\nline"},
		{what: "syntax", code: "echo before\nif true; then\n echo (\nfi", name: "SyntaxError", errout: "cell-9.sh: line 3: syntax error"},
		{what: "unfinished", code: "echo 'open", name: "SyntaxError"},
		{what: "break", code: "break; echo after", out: "after"},
		{what: "empty", code: "", out: "-"},
		{what: "hash bang", code: "#!/bin/bash\necho hi", out: "hi"},
		{what: "no input", code: "read v; echo $?; cat; bash -c 'read v || echo none'", out: "1\nnone", errout: "-"},

		{what: "env", request: interpreter.Request{Code: "echo \"$FOO\"; env | grep -c '^KEPT=new'", Env: env}, out: "a'b\nc\n1"},
		{what: "env is back", code: "echo ${FOO-unset} $KEPT; env | grep -c KEPT; true", out: "unset old\n0"},
		{what: "cwd", request: interpreter.Request{Code: "basename \"$PWD\"", Dir: filepath.Join(d.dir, "it's a sub")}, out: "it's a sub"},
		{what: "cwd stays", code: "basename \"$PWD\"", out: "it's a sub"},
		{what: "no such cwd", request: interpreter.Request{Code: "echo no", Dir: "/nowhere"}, out: "-", name: "CommandFailed", message: "/nowhere"},

		{what: "a status", code: "(exit 4)", name: "CommandFailed"},
		{what: "status of the last cell", code: "echo $?", out: "4"},
		{what: "its status", code: "echo $?; set -- a; (exit 9)", out: "0", name: "CommandFailed", message: "exit status 9"},
		{what: "an error trap", code: "echo $?; trap 'echo err' ERR", out: "9"},
		{what: "no error of ours", code: "trap - ERR", out: "-"},

		{what: "trace", code: "set -x", errout: "-"},
		{what: "traced", code: "echo hi", out: "hi", errout: "echo hi"},
		{what: "no trace of ours", code: "set +x", errout: "set +x"},
		{what: "quiet", code: "echo hi", errout: "-"},
		{what: "a trap", code: "n=0; trap 'echo \"dbg $BASH_COMMAND\"' DEBUG", out: "-", errout: "-"},
		{what: "the trap sees the cell only", code: "echo a; :", out: "dbg echo a\na\ndbg :", errout: "-"},
		{what: "the trap stays", code: "n=1", out: "dbg n=1", errout: "-"},
		{what: "the trap goes", code: "trap - DEBUG", out: "dbg trap - DEBUG"},
		{what: "no trap", code: "echo b", out: "b"},
		{what: "text of a trap", code: "export LEVEL=DEBUG; (exit 5)", name: "CommandFailed", message: "exit status 5"},
		{what: "status after the text", code: "echo $?; set -x; (exit 6)", out: "5", name: "CommandFailed", message: "exit status 6", errout: "exit 6"},
		{what: "status with a trace", code: "echo $?; set +x", out: "6", errout: "++ echo 6\n++ set +x"},
		{what: "a trap and a status", code: "trap 'echo \"dbg $BASH_COMMAND\"' DEBUG; (exit 7)", name: "CommandFailed", message: "exit status 7"},
		{what: "status with a trap", code: "echo $?; set -x; false", out: "dbg echo $?\n7\ndbg set -x\ndbg false", name: "CommandFailed", errout: "++ false"},
		{what: "both", code: "echo $?; trap - DEBUG; set +x", out: "dbg echo $?\n1\ndbg trap - DEBUG", errout: "set +x"},
		{what: "a status with errexit", code: "set -x; trap 'echo err' ERR; false", out: "err", name: "CommandFailed", errout: "++ false"},
		{what: "its status", code: "echo $?; set -e", out: "1", errout: "++ echo 1"},
		{what: "no errexit", code: "set +e; trap - ERR; (exit 8)", name: "CommandFailed"},
		{what: "only the trace", code: "echo $?; set +x", out: "8", errout: "++ echo 8"},
		{what: "nounset", code: "set -u; echo ok", out: "ok"},
		{what: "nounset goes on", code: "set +u; echo ok", out: "ok"},
		{what: "job", code: "sleep 30 & pid=$!; echo on", out: "on"},
		{what: "descriptors", code: "sleep 0.1; exec 3>/dev/null 4>&3; ls /proc/$pid/fd | grep -E '^(3|4|60|61)$'; echo 3 >&3", out: "-"},

		{what: "sleep", code: "echo on; sleep 60; echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "loop in a function", code: "g() { echo on; while :; do :; done; echo no; }; g; echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "loop of commands", code: "echo on; while true; do sleep 0.05; done; echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "subshell", code: "echo on; (while true; do sleep 0.05; done); echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "pipe", code: "echo on; sleep 60 | cat; echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "substitution", code: "echo on; y=$(sleep 60); echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "read", code: "echo on; read v < <(sleep 60); echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "wait", code: "echo on; wait; echo no", interruptWhen: "on", name: "KeyboardInterrupt", out: "on"},
		{what: "asked twice", code: "bash -c 'trap \"((++n > 1)) && exit 1\" INT; echo on; while :; do sleep 0.1; done'", interruptWhen: "on", name: "KeyboardInterrupt"},
		{what: "alive after interrupts", code: "echo $x; [[ -d /proc/$pid ]] && kill $pid && echo runs", out: "5\nruns"},

		{what: "exit", code: "echo a; exit 3", out: "a", name: "SystemExit", message: "3 (the shell has ended"},
		{what: "anew", code: "echo [$x] $PWD", out: "[] " + d.dir},
		{what: "errexit", code: "set -e; false; echo no", out: "-", name: "SystemExit", message: "1 ("},
		{what: "killed", code: "kill -9 $$", name: "SystemExit", message: "137 ("},
		{what: "exec", code: "exec echo other", out: "other", name: "SystemExit", message: "0 ("},
		{what: "no trap", code: "trap - INT; echo on; sleep 60", interruptWhen: "on", name: "KeyboardInterrupt"},
		{what: "alive", code: "echo hi", out: "hi"},
	} {
		s.run(t, d)
	}
	d.interrupt() // no cell is running
	time.Sleep(20 * time.Millisecond)
	d.send(interpreter.Request{Op: "ping", Nonce: "n"})
	if m := d.readMessage(); m.Type != "pong" || m.Nonce != "n" {
		t.Errorf("got message %+v", m)
	}
	step{what: "alive after an idle interrupt", code: "echo hi", out: "hi"}.run(t, d)
}

func TestBashProgramsReportExit(t *testing.T) {
	agent := buildAgent(t)
	for _, c := range []struct {
		what, code, stdin string
		limits            map[string]uint64
		signal            syscall.Signal
		cell              bool
		exit              int
		ended             int // the signal that ended the program, or 0
		out, errout       string
	}{
		{what: "output", code: "echo $FOO; echo err >&2", out: "bar", errout: "err"},
		{what: "stdin", code: "cat", stdin: "typed", out: "typed"},
		{what: "exit", code: "exit 3", exit: 3},
		{what: "status of the last", code: "false", exit: 1},
		{what: "signal", code: "kill -9 $$", exit: 137, ended: 9},
		{what: "code of a signal", code: "exit 137", exit: 137},
		{what: "syntax", code: "\necho (", exit: 2, errout: "main.sh: line 2: syntax error"},
		{what: "interrupted", code: "echo on; sleep 60", signal: syscall.SIGINT, exit: 130, ended: 2, out: "on"},
		{what: "limits", code: "ulimit -n", limits: map[string]uint64{"nofile": 77}, out: "77"},
		{what: "after a cell", code: "echo [$x]", cell: true, out: "[]"},
		{what: "descriptors", code: "ls -l /proc/$$/fd 2>/dev/null | grep -c socket; true", out: "0"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := startBash(t, agent)
			if c.cell {
				d.runCell("x=1")
			}
			if _, err := d.stdin.Write([]byte(c.stdin)); err != nil {
				t.Fatal(err)
			}
			d.stdin.Close()
			o := interpreter.Request{Op: "program", Code: c.code, Env: map[string]string{"FOO": "bar"}, Limits: c.limits}
			d.send(o)
			out := ""
			if c.signal != 0 {
				out = d.out.await(t, "on")
				d.interrupt()
			}
			end := d.readMessage()
			code, errout := d.wait(), d.errout.take()
			out = strings.TrimSuffix(out+d.out.take(), "\n")
			if end.Type != "end" || end.Code != c.exit || end.Signal != c.ended || code != c.exit || out != c.out || !strings.Contains(errout, c.errout) || c.errout == "" && errout != "" {
				t.Errorf("exit %d, end message %+v\nstdout %q\nstderr %q", code, end, out, errout)
			}
		})
	}
}
