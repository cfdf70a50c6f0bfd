package engine_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// A pause that keeps only the files is possible while programs run that prevent a pause with
// memory. Contexts and executions end, and the next use boots the sandbox with its files.
func TestPauseFilesOnlyKeepsFiles(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, FixedLease: true})
	cx, err := h.CreateContext(ctx, "one", brig.ContextSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.store.PutExec(ctx, &brig.Execution{Sandbox: box.ID, Result: brig.Result{ExecID: "detached", Started: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Fatalf("control: a pause with memory: %v", err)
	}
	paused, err := h.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if paused.State != brig.Paused || paused.Pause == nil || !paused.Pause.FilesOnly || paused.Pause.Bytes <= 0 || paused.Pause.Left < 59*time.Minute {
		t.Errorf("after the pause it is %s: %+v", paused.State, paused.Pause)
	}
	if live := h.Live(); len(live) != 0 {
		t.Errorf("the engine has the instances %v", live)
	}
	if x, err := h.GetExec(ctx, "one", "detached"); err != nil || !x.Done || x.ExitCode != 137 {
		t.Errorf("its execution is %+v, %v", x, err)
	}
	wantNote(t, ctx, h, "one")
	if s := h.getRecord(t, "one"); s.State != brig.Running || s.Pause != nil || s.ID != box.ID || time.Until(s.Expires) < 58*time.Minute {
		t.Errorf("after its use it is %+v", s)
	}
	_, err = h.RunCode(ctx, "one", brig.Code{Context: cx.ID, Source: "1"}, nil)
	if brig.KindOf(err) != brig.NotFound || !strings.Contains(brig.AsError(err).Hint, "only the files") {
		t.Errorf("a cell in a context of before: %v", err)
	}
	if n := h.provider.Saves(); n != 0 {
		t.Errorf("%d saves are left", n)
	}
	events, err := h.store.Events(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	marked := 0
	for _, e := range events {
		if e.Op == brig.OpPause.Name && e.Detail[brig.DetailFilesOnly] == "true" {
			marked++
		}
	}
	if marked != 2 { // intent and outcome
		t.Errorf("%d events of the pause say that only the files are kept, want 2", marked)
	}
}

// The next server finds a sandbox that was paused without its memory. If the earlier server died
// between the boot and recording it, the sandbox counts as paused, because its start command may
// not have run.
func TestPauseFilesOnlySurvivesRestart(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	unrecorded := h.createWithNoteFile(t, ctx, brig.Spec{Name: "saved"})
	booted := h.createWithNoteFile(t, ctx, brig.Spec{Name: "booted"})
	if _, err := h.Pause(ctx, "booted", brig.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	in, err := h.provider.Recover(ctx, unrecorded.ID, brig.Handle{})
	if err == nil {
		_, err = h.provider.Save(ctx, in, brig.SaveID(unrecorded.ID), brig.SaveOptions{FilesOnly: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.provider.Restore(ctx, brig.SaveID(booted.ID), booted.ID, booted.Spec, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	next := h.nextServer(t, nil)
	for _, name := range []string{"saved", "booted"} {
		if s, err := next.Get(ctx, name); err != nil || s.State != brig.Paused || s.Pause == nil || !s.Pause.FilesOnly {
			t.Errorf("%s is %+v, %v", name, s, err)
		}
		wantNote(t, ctx, next, name)
		if err := next.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	if machines := h.provider.Machines(); len(machines) != 0 {
		t.Errorf("the machines %v are left", machines)
	}
}

// If the start command cannot start when a sandbox boots with its files, the sandbox stays
// paused, without an instance. The next resume and copies run the start command again.
func TestFailedStartKeepsSandboxPaused(t *testing.T) {
	h := newFixture(t, func(o *engine.Options) {
		o.Templates = []brig.Template{{Name: "server", Image: "host", Start: &brig.Command{Argv: []string{"sleep", "60"}}}}
	})
	ctx := withRole(t, brig.Operator)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", Template: "server"})
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "other", Template: "server"}) // its start command is one execution
	if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{Executions: 1, Paused: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Resume(ctx, "one"); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("resume without a quota for the start command: %v", err)
	}
	if s, live := h.getRecord(t, "one"), h.Live(); s.State != brig.Paused || len(live) != 1 {
		t.Errorf("it is %s, and the engine has the instances %v", s.State, live)
	}
	if _, err := h.Pause(ctx, "other", brig.PauseOptions{FilesOnly: true}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("a second paused sandbox beyond the quota: %v", err)
	}
	if err := h.Remove(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", copies[0].Spec.Name, copies[1].Spec.Name} {
		wantNote(t, ctx, h, name)
		list, err := h.Processes(name).List(ctx)
		if err != nil || len(list) != 1 || list[0].Spec.Tag != brig.StartTag {
			t.Errorf("the processes of %s are %+v, %v", name, list, err)
		}
	}
}

// A sandbox can be created with automatic pauses that keep only its files, even if
// it has a main program. Invalid combinations are rejected with an error that names
// the field.
func TestCreateValidatesFilesOnlyPauses(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	if _, err := h.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	main := &brig.Command{Argv: []string{"sleep", "60"}}
	direct := brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect}
	for field, spec := range map[string]brig.Spec{
		"pause_files_only": {PauseFilesOnly: true},
		"pause_at_end":     {PauseAtEnd: true, PauseFilesOnly: true, Workspace: direct},
		"pause_after_ms":   {PauseAfter: time.Minute, Command: main},
	} {
		if _, err := h.Create(ctx, spec); brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != field {
			t.Errorf("%+v: %v, want an error about %s", spec, err, field)
		}
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "end", TTL: time.Second, FixedLease: true, PauseAtEnd: true, PauseFilesOnly: true, Command: main})
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "idle", PauseAfter: time.Second, PauseFilesOnly: true, Workspace: direct})
	for _, name := range []string{"end", "idle"} {
		for end := time.Now().Add(30 * time.Second); h.getRecord(t, name).State != brig.Paused; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s is %+v", name, h.getRecord(t, name))
			}
		}
		if s := h.getRecord(t, name); !s.Pause.FilesOnly {
			t.Errorf("%s is paused as %+v", name, s.Pause)
		}
		wantNote(t, ctx, h, name)
	}
	if all, err := h.WorkspaceVersions(ctx, "data"); err != nil || len(all) == 0 {
		t.Errorf("the workspace has the versions %+v, %v", all, err)
	}
}

// After the failed pause of a sandbox whose workspace is written back, as many goroutines watch
// the sandbox as before. If there are no changes to write back, further attempts add no audit
// events.
func TestFailedFilesOnlyPauseLeaksNothing(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	if _, err := h.CreateWorkspace(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	h.provider.OnSave = func(brig.SaveID) error { return brig.Errorf(brig.FailedPrecondition, "the disk is full") }
	box := h.createWithNoteFile(t, ctx, brig.Spec{
		Name: "one", TTL: time.Hour, Command: &brig.Command{Argv: []string{"sleep", "60"}},
		Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect},
	})
	awaitWatches := func(when string) {
		t.Helper()
		const want = 3 // for the main program, the lease and the files
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			stacks := make([]byte, 16<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			n := bytes.Count(stacks, []byte(".watchWorkspace.func")) + bytes.Count(stacks, []byte(".saveWorkspace.func"))
			if n == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s, %d goroutines watch the sandbox, want %d", when, n, want)
			}
		}
	}
	awaitWatches("at the start")
	for range 3 {
		if _, err := h.Pause(ctx, "one", brig.PauseOptions{FilesOnly: true}); brig.KindOf(err) != brig.FailedPrecondition {
			t.Fatalf("a pause on a full disk: %v", err)
		}
	}
	awaitWatches("after failed pauses")
	if n := h.countCommits(t, box.ID, ""); n != 1 {
		t.Errorf("%d commits of the workspace are on record, want 1", n)
	}
	if _, err := h.Kill(ctx, "one"); err != nil {
		t.Error(err)
	}
}

// countCommits returns the number of audit events for automatic commits of a sandbox's workspace
// that have the given result.
func (h *fixture) countCommits(t *testing.T, id brig.ID, result brig.Kind) (n int) {
	t.Helper()
	events, err := h.store.Events(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Op == brig.OpCommitWorkspace.Name && e.Sandbox == id && e.Phase == brig.Observed && e.Kind == result {
			n++
		}
	}
	return n
}

// If a server could not record the end of executions that a pause without memory ended, the next
// server records it. It does not end executions that started after the pause.
func TestNextServerEndsExecsOfPausedSandboxes(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	put := func(box *brig.Sandbox, id string, started time.Time) {
		t.Helper()
		if err := h.store.PutExec(ctx, &brig.Execution{Sandbox: box.ID, Result: brig.Result{ExecID: id, Started: started}}); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now()
	for _, name := range []string{"paused", "booted"} {
		box := h.createWithNoteFile(t, ctx, brig.Spec{Name: name, TTL: time.Hour})
		if _, err := h.Pause(ctx, name, brig.PauseOptions{FilesOnly: true}); err != nil {
			t.Fatal(err)
		}
		put(box, "old", before)
	}
	booted, err := h.Resume(ctx, "booted")
	if err != nil {
		t.Fatal(err)
	}
	put(booted, "missed", before) // as if the resume had failed to record its end
	put(booted, "new", time.Now())
	next := h.nextServer(t, nil)
	for _, x := range []struct {
		box, id string
		done    bool
	}{{"paused", "old", true}, {"booted", "old", true}, {"booted", "missed", true}, {"booted", "new", false}} {
		got, err := next.GetExec(ctx, x.box, x.id)
		if err != nil || got.Done != x.done || got.Done && got.ExitCode != 137 {
			t.Errorf("the execution %s of %s: %+v, %v", x.id, x.box, got, err)
		}
	}
	for _, name := range []string{"paused", "booted"} {
		if err := next.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
}

// If the workspace of an idle sandbox cannot be written back, its pause fails and is retried
// soon. The repeated failures are recorded once.
func TestIdlePauseRetriesFailedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Operator)
		if _, err := h.CreateWorkspace(ctx, "data"); err != nil {
			t.Fatal(err)
		}
		box := h.createWithNoteFile(t, ctx, brig.Spec{
			Name: "one", TTL: time.Hour, PauseAfter: time.Second, PauseFilesOnly: true,
			Workspace: brig.WorkspaceUse{Name: "data", Mode: brig.WorkspaceDirect},
		})
		if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{Workspaces: 1}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // advances the fake clock
		_, refused := h.idlePauses(t, box.ID)
		if n := h.countCommits(t, box.ID, brig.RateLimited); n != 1 || len(refused) != 1 {
			t.Errorf("%d failed commits and the failed pauses %q are on record, want 1 of each", n, refused)
		}
		if _, err := h.Kill(ctx, "one"); err != nil { // its goroutines have the fake clock
			t.Error(err)
		}
	})
}
