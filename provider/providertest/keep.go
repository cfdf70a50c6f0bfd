package providertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// recovered recovers an instance as a later server would.
func recovered(t *testing.T, h Harness, id brig.ID, in brig.Instance) brig.Instance {
	t.Helper()
	p := h.Provider
	if h.Next != nil {
		p = h.Next(t)
	}
	found, err := p.Recover(t.Context(), id, in.Handle())
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	return found
}

func kept(t *testing.T, in brig.Instance) map[string]brig.KeptProcess {
	t.Helper()
	list, err := in.KeptProcesses(t.Context())
	if err != nil {
		t.Fatalf("kept: %v", err)
	}
	out := map[string]brig.KeptProcess{}
	for _, k := range list {
		t.Cleanup(func() { k.Close() })
		out[k.ID] = k
	}
	if len(out) != len(list) {
		t.Errorf("%d are kept under %d ids", len(list), len(out))
	}
	return out
}

// testKeptProcesses checks that the next server finds a kept process with its
// note, and that the process continues to run.
func testKeptProcesses(t *testing.T, h Harness) {
	id, in := create(t, h, nil)
	if got := kept(t, in); len(got) != 0 {
		t.Fatalf("a new machine keeps %+v", got)
	}
	p, q, lost := start(t, h, in), start(t, h, in), start(t, h, in)
	for word, c := range map[string]*lineProcess{"p": p, "q": q, "lost": lost} {
		c.do(t, "x="+word, "set x "+word)
		if err := in.Keep(t.Context(), c.Process, []byte("note of "+word)); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("n", 3<<20)
	if err := in.Keep(t.Context(), q.Process, []byte(long)); err != nil { // another note
		t.Fatal(err)
	}
	if err := in.Keep(t.Context(), lost.Process, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*lineProcess{p, q} {
		c.Close()
	}
	next := recovered(t, h, id, in)
	got := kept(t, next)
	if len(got) != 2 || string(got[p.id].Note) != "note of p" || string(got[q.id].Note) != long {
		t.Fatalf("kept are %d: %.200v", len(got), got)
	}
	for word, c := range map[string]*lineProcess{"p": p, "q": q} {
		c := &lineProcess{got[c.id].Process, h.Real, c.id}
		if output := c.do(t, `echo "$x" >&3; echo out`, "get x\necho out"); len(output) != 2 || !strings.HasSuffix(strings.Join(output, "|"), word+"|stdout out\n") && !strings.HasPrefix(output[0], "stdout out") {
			t.Errorf("%s says %q", word, output)
		}
		if err := c.Signal(t.Context(), "SIGCONT"); err != nil {
			t.Errorf("signal: %v", err)
		}
	}
	// A kept process can be ended, and is then no longer kept.
	c := &lineProcess{got[p.id].Process, h.Real, p.id}
	if err := c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := c.toEnd(t); res.ExitCode != 137 {
		t.Errorf("it ended with %+v", res)
	}
	if err := next.Keep(t.Context(), c.Process, nil); err != nil {
		t.Errorf("letting go of what has ended: %v", err)
	}
	if err := next.Keep(t.Context(), got[q.id].Process, []byte("third")); err != nil {
		t.Fatal(err)
	}
	if got := kept(t, recovered(t, h, id, in)); len(got) != 1 || string(got[q.id].Note) != "third" {
		t.Errorf("in the end are kept %.200v", got)
	}
}

// testBind checks that a bound instance uses the spec that it was bound to.
func testBind(t *testing.T, h Harness) {
	blank := func(s *brig.Spec) { s.Name, s.Env, s.Ephemeral, s.Blank = "blank", nil, true, true }
	spec := h.spec()
	spec.Name, spec.Env = "bound", map[string]string{"LAYER": "bound"}
	bind := func(t *testing.T, ephemeral bool, lease time.Duration) (brig.ID, brig.Instance) {
		t.Helper()
		id, in := create(t, h, blank)
		before := start(t, h, in)
		spec.Ephemeral = ephemeral
		if err := in.Bind(t.Context(), spec, time.Now().Add(lease)); err != nil {
			t.Fatalf("bind: %v", err)
		}
		// The process that was waiting during the bind continues.
		before.do(t, "echo here", "echo here")
		return id, in
	}
	check := func(t *testing.T, in brig.Instance) {
		t.Helper()
		cmd := portable("env LAYER")
		if h.Real {
			cmd = script("echo $LAYER")
		}
		if a := run(t, in, cmd); a.out != "bound\n" {
			t.Errorf("its environment says %+v", a)
		}
		if h.Real {
			want := "bound\n"
			if h.FixedName {
				if want = "blank\n"; !slices.ContainsFunc(in.Notes(), func(n string) bool { return strings.Contains(n, "host name") }) {
					t.Errorf("nothing is said of its name: %q", in.Notes())
				}
			}
			if a := run(t, in, script("uname -n; hostname")); a.out != strings.Repeat(want, 2) {
				t.Errorf("its name is %q", a.out)
			}
		}
	}
	for _, ephemeral := range []bool{true, false} {
		_, in := bind(t, ephemeral, time.Minute)
		check(t, in)
		destroy(t, in)
	}
	t.Run("a durable one is found by the next server", func(t *testing.T) {
		id, in := bind(t, false, time.Minute)
		next := recovered(t, h, id, in)
		check(t, next)
		if err := next.Extend(t.Context(), time.Now().Add(300*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if e := ended(t, in); e.Reason != brig.LeaseExpired {
			t.Errorf("it ended with %+v", e)
		}
	})
	t.Run("its lease", func(t *testing.T) {
		_, in := bind(t, false, 1500*time.Millisecond)
		if e := ended(t, in); e.Reason != brig.LeaseExpired {
			t.Errorf("it ended with %+v", e)
		}
		if err := in.Bind(t.Context(), spec, time.Now().Add(time.Minute)); err == nil {
			t.Error("what has ended was bound")
		}
	})
}

// testPause checks that no program runs while an instance is paused, and that
// all programs continue after it is resumed.
func testPause(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p := start(t, h, in)
	p.send(t, "while :; do echo tick >&3; sleep 0.02; done", "")
	ticks := make(chan struct{}, 1<<20)
	go func() {
		for {
			if _, _, err := p.Receive(); err != nil {
				return
			}
			ticks <- struct{}{}
		}
	}()
	count := func(d time.Duration) (n int) {
		for end := time.After(d); ; {
			select {
			case <-ticks:
				n++
			case <-end:
				return n
			}
		}
	}
	if count(2*time.Second) == 0 {
		t.Fatal("it does not tick")
	}
	for range 2 {
		err := in.Pause(t.Context())
		if brig.KindOf(err) == brig.Unimplemented {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		count(200 * time.Millisecond) // in-flight output
		if n := count(time.Second); n != 0 {
			t.Errorf("%d ticks while it was frozen", n)
		}
		alive(t, in)
		if err := in.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if count(2*time.Second) == 0 {
			t.Error("it does not tick after it was thawed")
		}
	}
	// A paused instance can be ended.
	if err := in.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := in.Destroy(t.Context()); err != nil {
		t.Errorf("destroy while it is frozen: %v", err)
	}
	ended(t, in)
}
