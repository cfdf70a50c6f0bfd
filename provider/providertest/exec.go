package providertest

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/brig-run/brig"
)

func testExitCodes(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	for _, code := range []int{0, 1, 7, 255} {
		cmd := portable(fmt.Sprintf("exit %d", code))
		if h.Real {
			cmd = script(fmt.Sprintf("exit %d", code))
		}
		if a := run(t, in, cmd); !a.Done || a.ExitCode != code || a.TimedOut || a.OOMKilled || a.Signal != "" {
			t.Errorf("exit %d: %+v", code, a.Result)
		}
	}
}

func testSignals(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	for sig, code := range map[string]int{"KILL": 137, "TERM": 143, "SEGV": 139} {
		a := run(t, in, script("kill -"+sig+" $$"))
		if a.Signal != "SIG"+sig || a.ExitCode != code || a.OOMKilled || a.TimedOut {
			t.Errorf("killed itself with SIG%s: %+v", sig, a.Result)
		}
	}
	// A program must not inherit ignored signals from the agent.
	for _, sig := range []int{1, 2, 5, 10, 13, 24, 31, 35, 50, 64} {
		if a := run(t, in, script(fmt.Sprintf("kill -%d $$; echo alive", sig))); a.out != "" || a.ExitCode != 128+sig {
			t.Errorf("killed itself with signal %d: %q, %+v", sig, a.out, a.Result)
		}
	}
}

func testStreams(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if a := run(t, in, portable("echo hello there")); a.out != "hello there\n" || a.err != "" || a.Stdout.Total != 12 && h.Real {
		t.Errorf("stdout: %q, %q, %+v", a.out, a.err, a.Result)
	}
	cmd := portable("stderr oh no")
	if h.Real {
		cmd = script("echo oh no >&2")
	}
	if a := run(t, in, cmd); a.out != "" || a.err != "oh no\n" {
		t.Errorf("stderr: %q, %q", a.out, a.err)
	}
	// Arguments are passed on unchanged.
	hostile := `$(id) ; "a' b` + "`x` \\ * é"
	if a := run(t, in, brig.Command{Argv: []string{"echo", hostile}}); a.out != hostile+"\n" {
		t.Errorf("an argument came out as %q, want %q", a.out, hostile)
	}
	if !h.Real {
		return
	}
	// Programs can open the streams by name, and the streams include the
	// output of child processes.
	named := script("echo one >/dev/stdout && echo two >/dev/stderr && (sleep 0.2; cat /dev/stdin; echo late) &")
	if a := run(t, in, named); a.ExitCode != 0 || a.out != "one\nlate\n" || a.err != "two\n" {
		t.Errorf("by name and late: %q, %q, %+v", a.out, a.err, a.Result)
	}
	var result bytes.Buffer
	res, err := in.Exec(t.Context(), newExecID(), script("echo value >&3"), brig.IO{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Result: &result})
	if err != nil || res.ExitCode != 0 || result.String() != "value\n" {
		t.Errorf("descriptor 3: %+v, %v, %q", res, err, &result)
	}
}

func testStdin(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	var out, errs bytes.Buffer
	cmd := portable("cat")
	cmd.Timeout = waitTimeout
	started := 0
	id := newExecID()
	res, err := in.Exec(t.Context(), id, cmd, brig.IO{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: &errs, Started: func(got string) {
		if started++; got != id {
			t.Errorf("Started says %q, want %q", got, id)
		}
	}})
	if err != nil || res.ExitCode != 0 || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("cat of %d bytes gave %d: %+v, %v", len(data), out.Len(), res, err)
	}
	if started != 1 {
		t.Errorf("Started was called %d times", started)
	}
	if a := run(t, in, portable("cat")); a.out != "" || a.ExitCode != 0 {
		t.Errorf("no stdin is not an empty one: %q, %+v", a.out, a.Result)
	}
}

func testEnv(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	get := func(name string, env map[string]string) string {
		cmd := portable("env " + name)
		if h.Real {
			cmd = script("printf '%s\n' \"$" + name + `"`)
		}
		cmd.Env = env
		return strings.TrimSuffix(run(t, in, cmd).out, "\n")
	}
	if v := get("LAYER", nil); v != "sandbox" {
		t.Errorf("of the sandbox: %q", v)
	}
	over := map[string]string{"LAYER": "command", "ODD": "a b=c $HOME"}
	if v := get("LAYER", over); v != "command" {
		t.Errorf("the command's does not win: %q", v)
	}
	if v := get("ODD", over); v != "a b=c $HOME" {
		t.Errorf("a value came through as %q", v)
	}
	if v := get("ONLY", over); v != "here" {
		t.Errorf("the sandbox's is gone: %q", v)
	}
}

func testDir(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	for dir, want := range map[string]string{"": "/workspace", "/tmp": "/tmp", "/usr/../etc": "/etc"} {
		cmd := portable("/bin/pwd")
		cmd.Dir = dir
		if a := run(t, in, cmd); a.out != want+"\n" {
			t.Errorf("in %q: %q, want %q", dir, a.out, want)
		}
	}
	cmd := portable("pwd")
	cmd.Dir = "/does/not/exist"
	_, err := try(t.Context(), in, newExecID(), cmd)
	if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidArgument || e.Field != "cwd" {
		t.Errorf("in a directory that is not there: %v", err)
	}
}

func testUser(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	for user, want := range map[string]string{"": "1000 1000 /home/user\n", "user": "1000 1000 /home/user\n", "root": "0 0 /root\n", "1234:1235": "1234 1235 /home/user\n"} {
		cmd := script("echo $(id -u) $(id -g) $HOME")
		cmd.User = user
		if a := run(t, in, cmd); a.out != want {
			t.Errorf("user %q: %q, want %q", user, a.out, want)
		}
	}
	// The process limit holds for each user, so the number of users is limited, too.
	cmd := script("id -u")
	cmd.User = "1236:1236"
	if a := run(t, in, cmd); a.out != "1236\n" {
		t.Errorf("a second other user: %q", a.out)
	}
	cmd.User = "1237:1237"
	if _, err := try(t.Context(), in, newExecID(), cmd); err == nil || brig.AsError(err).Field != "user" {
		t.Errorf("a third other user: %v", err)
	}
}

func testBadCommands(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	bad := [][]string{{"no-such-program"}}
	if h.Real {
		bad = append(bad, []string{"/no/such/program"}, []string{""}, []string{"/etc/passwd"}, []string{"/tmp"})
	}
	for _, argv := range bad {
		_, err := try(t.Context(), in, newExecID(), brig.Command{Argv: argv})
		if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidArgument || e.Field != "command" {
			t.Errorf("%q: %v", argv, err)
		}
	}
	alive(t, in)
}

// testConcurrent runs eight concurrent commands, each with separate streams.
func testConcurrent(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			mark := fmt.Sprintf("mark-%d", i)
			cmd, want := portable("echo "+mark), mark+"\n"
			if h.Real {
				cmd = script("i=0; while [ $i -lt 200 ]; do echo " + mark + "; i=$((i+1)); done; exit " + fmt.Sprint(i))
				want = strings.Repeat(mark+"\n", 200)
			}
			a, err := try(t.Context(), in, newExecID(), cmd)
			if err != nil || a.out != want || h.Real && a.ExitCode != i {
				t.Errorf("%s: %v, %+v, %d bytes %.200q", mark, err, a.Result, len(a.out), a.out)
			}
		})
	}
	all.Wait()
}

// testHostileExecIDs checks that an exec ID is not interpreted.
func testHostileExecIDs(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	for _, id := range []string{"../../etc", "a/b", "a\x00b", "$(id)", strings.Repeat("x", 4096), "é\n"} {
		if a, err := try(t.Context(), in, id, portable("echo ok")); err != nil || a.out != "ok\n" {
			t.Errorf("id %.20q: %v, %+v", id, err, a)
		}
	}
	if _, err := try(t.Context(), in, "", portable("echo ok")); err == nil {
		t.Error("an empty id is taken")
	}
	if _, err := try(t.Context(), in, "a/b", portable("echo ok")); err == nil {
		t.Error("an id is taken twice")
	}
}
