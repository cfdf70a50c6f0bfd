package providertest

import (
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func testRecoverLive(t *testing.T, h Harness) {
	id, in := create(t, h, nil)
	if err := in.Log([]byte("before\n")); err != nil {
		t.Fatal(err)
	}
	recovered, err := h.Provider.Recover(t.Context(), id, in.Handle())
	if err != nil {
		t.Fatal(err)
	}
	alive(t, recovered)
	if a, b := in.Handle(), recovered.Handle(); a.Provider != b.Provider || a.Version != b.Version || string(a.State) != string(b.State) {
		t.Errorf("its handle was %+v and is %+v", a, b)
	}
	cmd := portable("env LAYER")
	if h.Real {
		cmd = script("echo $LAYER")
	}
	if a := run(t, recovered, cmd); a.out != "sandbox\n" {
		t.Errorf("in the recovered machine: %+v", a)
	}
	if got := readLogs(t, recovered); got != "before\n" {
		t.Errorf("its log: %q", got)
	}
	if err := recovered.Stop(t.Context(), 0, brig.Stopped); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, in); e.Reason != brig.Stopped {
		t.Errorf("seen by who made it, it ended with %+v", e)
	}
}

func testRecoverEnded(t *testing.T, h Harness) {
	id, in := create(t, h, withMain(h, "echo last words; exit 9", "exit 9"))
	want := ended(t, in)
	recovered, err := h.Provider.Recover(t.Context(), id, in.Handle())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-recovered.Done():
	case <-time.After(waitTimeout):
		t.Fatal("it has ended and Done is not closed")
	}
	if e := recovered.Exit(); e == nil || e.Code != 9 || e.Reason != want.Reason || !e.At.Equal(want.At) {
		t.Errorf("exit: %+v, want %+v", e, want)
	}
	if got := readLogs(t, recovered); h.Real && !strings.Contains(got, "last words") {
		t.Errorf("its log: %q", got)
	}
	destroy(t, recovered)
	if _, err := h.Provider.Recover(t.Context(), id, in.Handle()); brig.KindOf(err) != brig.NotFound {
		t.Errorf("after Destroy: %v", err)
	}
}

func testRecoverNothing(t *testing.T, h Harness) {
	if _, err := h.Provider.Recover(t.Context(), newID(), brig.Handle{Provider: h.Provider.Capabilities().Name, Version: 1}); brig.KindOf(err) != brig.NotFound {
		t.Errorf("of nothing: %v", err)
	}
}

func testSweep(t *testing.T, h Harness) {
	known, kept := create(t, h, nil)
	unknown, orphan := create(t, h, nil)
	gone, dead := create(t, h, withMain(h, "exit 0", "exit 0"))
	ended(t, dead)
	n, err := h.Provider.Sweep(t.Context(), map[brig.ID]bool{known: true})
	if err != nil || n != 2 {
		t.Errorf("swept %d, %v; want 2", n, err)
	}
	ended(t, orphan)
	for _, id := range []brig.ID{unknown, gone} {
		if _, err := h.Provider.Recover(t.Context(), id, orphan.Handle()); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s after the sweep: %v", id, err)
		}
	}
	alive(t, kept)
	if a := run(t, kept, portable("echo ok")); a.out != "ok\n" {
		t.Errorf("the known one: %+v", a)
	}
	if n, err := h.Provider.Sweep(t.Context(), map[brig.ID]bool{known: true}); n != 0 || err != nil {
		t.Errorf("swept again: %d, %v", n, err)
	}
}

func testDestroy(t *testing.T, h Harness) {
	id, in := create(t, h, nil)
	for i := range 2 {
		if err := in.Destroy(t.Context()); err != nil {
			t.Errorf("destroy %d: %v", i, err)
		}
	}
	ended(t, in)
	if _, err := h.Provider.Recover(t.Context(), id, in.Handle()); brig.KindOf(err) != brig.NotFound {
		t.Errorf("afterwards: %v", err)
	}
	if n, err := h.Provider.Sweep(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("a sweep afterwards finds %d things, %v", n, err)
	}
}

// testHostileIDs checks that Create and Recover reject invalid IDs.
func testHostileIDs(t *testing.T, h Harness) {
	for _, id := range []brig.ID{"", ".", "..", "../x", "a/b", "/tmp/x", "a\x00b", "-x", "a b", "é", brig.ID(strings.Repeat("x", 300))} {
		in, err := h.Provider.Create(t.Context(), id, h.spec(), time.Now().Add(time.Minute))
		if err == nil {
			t.Errorf("id %.20q makes a machine", id)
			destroy(t, in)
		}
		if _, err := h.Provider.Recover(t.Context(), id, brig.Handle{}); err == nil {
			t.Errorf("id %.20q finds a machine", id)
		}
	}
}
