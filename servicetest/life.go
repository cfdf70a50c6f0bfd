package servicetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func (h Harness) testLifecycle(t *testing.T) {
	t.Run("create", h.testCreate)
	t.Run("a name is taken once", h.testNameTaken)
	t.Run("stop", h.testStop)
	t.Run("kill", h.testKill)
	t.Run("remove", h.testRemove)
	t.Run("extend", h.testExtend)
	t.Run("main program", h.testMainProgram)
}

func (h Harness) testCreate(t *testing.T) {
	want := brig.Spec{Name: name(), Labels: map[string]string{"a": "b"}, Env: map[string]string{"K": "v"}, TTL: time.Minute}
	s := h.sandbox(t, want)
	if s.ID == "" || s.State != brig.Running || s.Created.IsZero() || !s.Expires.After(s.Created) || s.Digest == "" || s.Provider == "" {
		t.Errorf("Create = %+v, want a running one with everything filled in", s)
	}
	for _, by := range []string{s.Spec.Name, string(s.ID)} {
		got, err := h.Service.Get(h.Context(t), by)
		if err != nil {
			t.Fatalf("Get(%s): %v", by, err)
		}
		if got.ID != s.ID || got.Spec.Name != want.Name || got.Spec.Labels["a"] != "b" || got.Spec.Env["K"] != "v" ||
			got.Spec.TTL != want.TTL || got.Spec.Limits.Memory == 0 || got.Spec.Image == "" || got.Exit != nil || !got.Ended.IsZero() {
			t.Errorf("Get(%s) = %+v", by, got)
		}
	}
	// A provider that measures usage reports some memory.
	if u, err := h.Service.Usage(h.Context(t), s.Spec.Name); brig.KindOf(err) != brig.Unimplemented && (err != nil || u.Memory <= 0 || u.At.IsZero()) {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if unnamed := h.sandbox(t, brig.Spec{}); !brig.ValidName(unnamed.Spec.Name) {
		t.Errorf("one without a name is named %q", unnamed.Spec.Name)
	}
}

func (h Harness) testNameTaken(t *testing.T) {
	s := h.sandbox(t, brig.Spec{Labels: map[string]string{"first": "yes"}})
	_, err := h.Service.Create(h.Context(t), brig.Spec{Name: s.Spec.Name})
	wantKind(t, "Create with a taken name", err, brig.AlreadyExists)
	got, err := h.Service.Get(h.Context(t), s.Spec.Name)
	if err != nil || got.ID != s.ID || got.State != brig.Running || got.Spec.Labels["first"] != "yes" {
		t.Errorf("the first is now %+v, %v", got, err)
	}
	contested := name()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards the fields below
	var won []string
	for range 8 {
		wg.Go(func() {
			s, err := h.Service.Create(h.Context(t), brig.Spec{Name: contested})
			if err != nil {
				wantKind(t, "Create of a contested name", err, brig.AlreadyExists)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			won = append(won, string(s.ID))
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d of 8 got the same name", len(won))
	}
	for _, id := range won {
		if err := h.Service.Remove(h.Context(t), id); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
}

func (h Harness) testStop(t *testing.T) {
	s := h.sandbox(t, brig.Spec{})
	if _, err := h.Service.Exec(h.Context(t), s.Spec.Name, h.cmd("echo", "first"), brig.IO{}); err != nil {
		t.Fatalf("Exec: %v", err)
	}
	res, err := h.Service.Exec(h.Context(t), s.Spec.Name, h.cmd("echo", "last", "words"), brig.IO{})
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	if log := h.logs(t, s.Spec.Name, 0); !strings.Contains(log, "first\n") || !strings.Contains(log, "last words\n") {
		t.Errorf("the log is %q", log)
	}
	for range 2 { // stopping an ended sandbox succeeds
		got, err := h.Service.Stop(h.Context(t), s.Spec.Name, time.Second)
		if err != nil {
			t.Fatalf("Stop: %v", err)
		}
		if got.State != brig.Ended || got.Exit == nil || got.Exit.Reason != brig.Stopped || got.Ended.IsZero() {
			t.Errorf("Stop = %+v (%+v)", got, got.Exit)
		}
	}
	t.Run("what is gone stays readable", func(t *testing.T) {
		got, err := h.Service.Get(h.Context(t), s.Spec.Name)
		if err != nil || got.State != brig.Ended || got.Exit == nil || got.Exit.Reason != brig.Stopped {
			t.Errorf("Get = %+v, %v", got, err)
		}
		if log := h.logs(t, s.Spec.Name, 1); log != "last words\n" {
			t.Errorf("the log's last line is %q", log)
		}
		if x, err := h.Service.GetExec(h.Context(t), s.Spec.Name, res.ExecID); err != nil || !x.Done {
			t.Errorf("GetExec = %+v, %v", x, err)
		}
	})
	t.Run("but does nothing more", func(t *testing.T) {
		_, err := h.Service.Exec(h.Context(t), s.Spec.Name, h.cmd("echo"), brig.IO{})
		wantKind(t, "Exec", err, brig.FailedPrecondition)
		_, err = h.Service.Extend(h.Context(t), s.Spec.Name, time.Minute)
		wantKind(t, "Extend", err, brig.FailedPrecondition)
		_, err = h.Service.Usage(h.Context(t), s.Spec.Name)
		wantKind(t, "Usage", err, brig.FailedPrecondition)
	})
	if got, err := h.Service.Kill(h.Context(t), s.Spec.Name); err != nil || got.Exit == nil || got.Exit.Reason != brig.Stopped {
		t.Errorf("Kill of one that was stopped = %+v, %v", got, err)
	}
	_, err = h.Service.Stop(h.Context(t), s.Spec.Name, -time.Second)
	wantKind(t, "Stop with negative grace", err, brig.InvalidArgument)
}

func (h Harness) testKill(t *testing.T) {
	s := h.sandbox(t, brig.Spec{})
	for range 2 {
		got, err := h.Service.Kill(h.Context(t), s.Spec.Name)
		if err != nil || got.State != brig.Ended || got.Exit == nil || got.Exit.Reason != brig.Killed {
			t.Errorf("Kill = %+v, %v", got, err)
		}
	}
}

func (h Harness) testRemove(t *testing.T) {
	s := h.sandbox(t, brig.Spec{})
	if err := h.Service.Remove(h.Context(t), s.Spec.Name); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	h.checkMissing(h.Context(t), t, h.Service, s.Spec.Name)
	h.checkMissing(h.Context(t), t, h.Service, string(s.ID))
	if again := h.sandbox(t, brig.Spec{Name: s.Spec.Name}); again.ID == s.ID {
		t.Error("an id was used again")
	}
}

func (h Harness) testExtend(t *testing.T) {
	s := h.sandbox(t, brig.Spec{TTL: time.Minute})
	got, err := h.Service.Extend(h.Context(t), s.Spec.Name, time.Hour)
	if err != nil {
		t.Fatalf("Extend: %v", err)
	}
	if left := time.Until(got.Expires); left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("extended by an hour it expires in %v", left)
	}
	for _, ttl := range []time.Duration{-time.Second, 1e6 * time.Hour} {
		_, err := h.Service.Extend(h.Context(t), s.Spec.Name, ttl)
		wantField(t, "Extend by "+ttl.String(), err, "ttl_ms")
	}
	after, err := h.Service.Get(h.Context(t), s.Spec.Name)
	if err != nil || !after.Expires.Equal(got.Expires) {
		t.Errorf("after refusals it expires at %v, before at %v (%v)", after.Expires, got.Expires, err)
	}
}

func (h Harness) testMainProgram(t *testing.T) {
	cmd := h.cmd("exit", "3")
	s := h.sandbox(t, brig.Spec{Command: &cmd})
	var got *brig.Sandbox
	eventually(t, "the main program's end", func() (done bool) {
		var err error
		got, err = h.Service.Get(h.Context(t), s.Spec.Name)
		return err == nil && got.State == brig.Ended
	})
	if got.Exit == nil || got.Exit.Code != 3 || got.Exit.Reason != brig.Exited {
		t.Errorf("it ended as %+v, want exited with 3", got.Exit)
	}
}
