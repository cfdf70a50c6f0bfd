package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestPauseAfter verifies over REST that a sandbox with pause_after_ms has no processes after its
// idle time, and continues with its variables at the next use. A command whose streams are on the
// host prevents the pause until it ends, and is named in the audit log. The control is a sandbox
// without pause_after_ms.
//
//suite:part core
func TestPauseAfter(t *testing.T) {
	needRoot(t)
	ctx, dir := t.Context(), t.TempDir()
	s := startServer(t, dir)
	svc := s.client()
	state := func(name string) brig.State {
		t.Helper()
		now, err := svc.Get(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return now.State
	}
	await := func(name string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); state(name) != brig.Paused; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it is %s", state(name))
			}
		}
	}
	for name, after := range map[string]time.Duration{"one": time.Second, "held": time.Second, "control": 0} {
		if _, err := svc.Create(ctx, brig.Spec{Name: name, PauseAfter: after, FreezeAfter: after / 4}); err != nil {
			t.Fatal(err)
		}
	}
	cx, err := svc.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	runCell(t, ctx, svc, "one", cx.ID, "x = 41")
	if _, err := svc.RunCode(ctx, "held", brig.Code{Source: "import subprocess\np = subprocess.Popen(['sleep', '1000'])"}, nil); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		await("one")
		if got, want := runCell(t, ctx, svc, "one", cx.ID, "x += 1\nprint(x)"), []string{"42", "43"}[n]; got != want {
			t.Errorf("after the pause %d the context printed %q, want %q", n+1, got, want)
		}
	}
	reason := ""
	for end := time.Now().Add(2 * promptTimeout); reason == "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		page, err := svc.Audit(ctx, brig.AuditQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Lines {
			if l.Op == brig.OpPause.Name && l.Kind == brig.FailedPrecondition {
				reason = l.Detail[brig.DetailWhy]
			}
		}
	}
	if !strings.HasPrefix(reason, "idle: ") || !strings.Contains(reason, "sleep") {
		t.Errorf("the reason on record is %q", reason)
	}
	if got := state("held"); got != brig.Running {
		t.Errorf("a sandbox with a program that cannot be saved is %s", got)
	}
	if _, err := svc.RunCode(ctx, "held", brig.Code{Source: "p.kill()\np.wait()"}, nil); err != nil {
		t.Fatal(err)
	}
	await("held")
	if got := state("control"); got != brig.Running {
		t.Errorf("control: it is %s", got)
	}
	for _, name := range []string{"one", "held", "control"} {
		if err := svc.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
}
