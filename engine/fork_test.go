package engine_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/provider/fake"
)

// wantOnly fails the test unless the named sandbox is the only sandbox, is running, and has the
// only instance, and there are no saves.
func (h *fixture) wantOnly(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	page, err := h.List(ctx, brig.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Sandboxes) != 1 || page.Sandboxes[0].State != brig.Running {
		t.Errorf("there are the sandboxes %+v", page.Sandboxes)
	}
	if machines, saves := h.provider.Machines(), h.provider.Saves(); len(machines) != 1 || saves != 0 {
		t.Errorf("there are the machines %v, and %d saves", machines, saves)
	}
	wantNote(t, ctx, h, name)
}

// Copies are independent sandboxes with the files of the original. The audit log has events for
// the call on the original, and one event for each copy.
func TestForkCreatesIndependentCopies(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	labels := map[string]string{"a": "b"}
	origin := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", Labels: labels, TTL: time.Hour})
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[brig.ID]bool{origin.ID: true}
	for _, c := range copies {
		if seen[c.ID] || c.Origin != origin.ID || c.State != brig.Running || !strings.HasPrefix(c.Spec.Name, "one-") || !maps.Equal(c.Spec.Labels, labels) {
			t.Errorf("a copy is %+v", c)
		}
		if remaining := time.Until(c.Expires); remaining < 58*time.Minute || remaining > time.Hour {
			t.Errorf("the lease of a copy ends in %v", remaining)
		}
		seen[c.ID] = true
		wantNote(t, ctx, h, c.Spec.Name)
		if _, err := h.Files(c.Spec.Name).Write(ctx, brig.Path{Name: "/workspace/note"}, brig.FileWrite{}, strings.NewReader("changed")); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 4 {
		t.Errorf("there are %d sandboxes, want 4", len(seen))
	}
	wantNote(t, ctx, h, "one")
	if n := h.provider.Saves(); n != 0 {
		t.Errorf("%d saves are left", n)
	}
	events, err := h.store.Events(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	phases := map[brig.ID][]brig.Phase{}
	for _, e := range events {
		if e.Op != brig.OpFork.Name {
			continue
		}
		phases[e.Sandbox] = append(phases[e.Sandbox], e.Phase)
		want := string(origin.ID)
		if e.Sandbox == origin.ID {
			want = ""
		}
		if e.Actor != "ann" || e.Detail[brig.DetailOrigin] != want || (want == "") != (e.Detail[brig.DetailCount] == "3") {
			t.Errorf("the audit log has %+v", e)
		}
	}
	if len(phases) != 4 || len(phases[origin.ID]) != 2 || len(phases[copies[0].ID]) != 1 {
		t.Errorf("the audit log has the phases %v", phases)
	}
	again, err := h.Fork(ctx, copies[0].Spec.Name, brig.ForkSpec{Labels: map[string]string{}, TTL: time.Minute})
	if err != nil || len(again) != 1 || again[0].Origin != copies[0].ID || len(again[0].Spec.Labels) != 0 || time.Until(again[0].Expires) > time.Minute {
		t.Errorf("the copy of a copy is %+v, %v", again, err)
	}
}

// A fork that is not possible fails with a specific error. It creates no copies, and the original
// continues to run.
func TestImpossibleForkCreatesNoCopies(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	granted := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Member, Sandboxes: []string{"one"}})
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Operator})
	for _, c := range []struct {
		ctx  context.Context
		o    brig.ForkSpec
		want brig.Kind
	}{
		{ctx, brig.ForkSpec{Count: brig.MaxForks + 1}, brig.InvalidArgument},
		{ctx, brig.ForkSpec{Count: -1}, brig.InvalidArgument},
		{ctx, brig.ForkSpec{TTL: -1}, brig.InvalidArgument},
		{ctx, brig.ForkSpec{Labels: map[string]string{"": ""}}, brig.InvalidArgument},
		{granted, brig.ForkSpec{}, brig.PermissionDenied},
		{rival, brig.ForkSpec{}, brig.NotFound},
	} {
		if _, err := h.Fork(c.ctx, "one", c.o); brig.KindOf(err) != c.want {
			t.Errorf("%+v: %v, want %s", c.o, err, c.want)
		}
		h.wantOnly(t, ctx, "one")
	}
	if _, err := h.CreateContext(ctx, "one", brig.ContextSpec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 2}); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "running program") {
		t.Errorf("with a program that cannot be saved: %v", err)
	}
	h.wantOnly(t, ctx, "one")
	if _, err := h.Create(ctx, brig.Spec{Name: "two", Image: "sha256:host"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, allowed string
		want          brig.Kind
	}{{"one", "other", brig.PolicyBlocked}, {"two", "other", brig.PolicyBlocked}, {"two", "sha256:host", ""}, {"two", brig.HostImage, ""}} {
		if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Ceilings: brig.Ceilings{Images: []string{c.allowed}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Fork(ctx, c.name, brig.ForkSpec{}); brig.KindOf(err) != c.want {
			t.Errorf("%s, with the image %s allowed: %v, want %q", c.name, c.allowed, err, c.want)
		}
	}
}

// A call that still uses the original prevents a fork.
func TestCallPreventsFork(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	calls, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := h.Exec(calls, "one", brig.Command{Argv: []string{"sleep", "60"}}, brig.IO{})
		ended <- err
	}()
	for h.Users(box.ID) == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{}); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "in use") {
		t.Errorf("fork: %v", err)
	}
	cancel()
	<-ended
	h.wantOnly(t, ctx, "one")
	if copies, err := h.Fork(ctx, "one", brig.ForkSpec{}); err != nil || len(copies) != 1 {
		t.Errorf("control: %v", err)
	}
}

// If the save or the restore of one copy fails, no copy is left, and the reserved
// quota is released. A partial fork makes as many copies as the quota allows.
func TestForkIsAllOrNothing(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{Sandboxes: 5}}); err != nil {
		t.Fatal(err)
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 5}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("beyond the quota: %v", err)
	}
	h.wantOnly(t, ctx, "one")
	some, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 5, Partial: true})
	if err != nil || len(some) != 4 {
		t.Errorf("beyond the quota, partially: %d copies, %v", len(some), err)
	}
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 2, Partial: true}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("without any quota, partially: %v", err)
	}
	for _, c := range some {
		if err := h.Remove(ctx, string(c.ID)); err != nil {
			t.Error(err)
		}
	}
	h.wantOnly(t, ctx, "one")
	broken := errors.New("broken")
	h.provider.OnSave = func(brig.SaveID) error { return broken }
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 4}); brig.KindOf(err) != brig.Internal {
		t.Errorf("with a save that fails: %v", err)
	}
	h.provider.OnSave = nil
	h.wantOnly(t, ctx, "one")
	var restores atomic.Int32
	h.provider.OnRestore = func(brig.ID) error {
		if restores.Add(1) == 3 {
			return broken
		}
		return nil
	}
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 4}); brig.KindOf(err) != brig.Internal {
		t.Errorf("with a restore that fails: %v", err)
	}
	h.wantOnly(t, ctx, "one")
	h.provider.OnRestore = nil
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 4})
	if err != nil || len(copies) != 4 {
		t.Fatalf("control: %d copies, %v", len(copies), err)
	}
	for _, c := range copies {
		if err := h.Remove(ctx, c.Spec.Name); err != nil {
			t.Error(err)
		}
	}
	h.wantOnly(t, ctx, "one")
}

// A paused sandbox stays paused when it is forked, any number of times.
func TestPausedSandboxStaysPausedWhenForked(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		copies, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range copies {
			wantNote(t, ctx, h, c.Spec.Name)
		}
		if s := h.getRecord(t, "one"); s.State != brig.Paused {
			t.Errorf("the original is %s", s.State)
		}
	}
	wantNote(t, ctx, h, "one")
	if s := h.getRecord(t, "one"); s.State != brig.Running || h.provider.Saves() != 0 {
		t.Errorf("after its use the original is %s, and there are %d saves", s.State, h.provider.Saves())
	}
}

// A paused copy has the state of the original at the time of the fork, and no instance. It counts
// against the storage quota of its tenant, outlives the server, and can be forked and resumed.
func TestPausedForkKeepsState(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	origin := h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour})
	for _, o := range []brig.ForkSpec{{Paused: true, Count: 2}, {Name: "base", Count: 2}, {Name: "-"}} {
		if _, err := h.Fork(ctx, "one", o); brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Name: "one", Paused: true}); brig.KindOf(err) != brig.AlreadyExists {
		t.Errorf("with a name that is taken: %v", err)
	}
	h.wantOnly(t, ctx, "one")
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{Name: "base", Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	c := copies[0]
	if c.Spec.Name != "base" || c.Origin != origin.ID || c.State != brig.Paused || c.Pause == nil || c.Pause.Bytes <= 0 || c.Pause.Left != time.Hour || time.Until(c.Expires) < 24*time.Hour {
		t.Errorf("the paused copy is %+v, %+v", c, c.Pause)
	}
	if machines := h.provider.Machines(); len(machines) != 1 {
		t.Errorf("there are the machines %v", machines)
	}
	if _, err := h.Files("one").Write(ctx, brig.Path{Name: "/workspace/note"}, brig.FileWrite{}, strings.NewReader("changed")); err != nil {
		t.Fatal(err)
	}
	next := h.nextServer(t, nil)
	running, err := next.Fork(ctx, "base", brig.ForkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	wantNote(t, ctx, next, running[0].Spec.Name)
	if s, err := next.Get(ctx, "base"); err != nil || s.State != brig.Paused {
		t.Errorf("after a fork the paused copy is %+v, %v", s, err)
	}
	if _, err := next.Fork(ctx, "base", brig.ForkSpec{Paused: true}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a paused copy of a paused copy: %v", err)
	}
	wantNote(t, ctx, next, "base")
	if _, err := next.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{Storage: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Fork(ctx, "base", brig.ForkSpec{Name: "more", Paused: true}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("beyond the storage: %v", err)
	}
	if _, err := next.Get(ctx, "more"); brig.KindOf(err) != brig.NotFound || h.provider.Saves() != 0 {
		t.Errorf("the rejected copy: %v, and %d saves", err, h.provider.Saves())
	}
}

// checkedProvider is a fake provider that calls hooks in CheckSave and Unpack.
type checkedProvider struct {
	*fake.Provider
	check, unpack func()
}

// Unpack implements brig.Saver.
func (p *checkedProvider) Unpack(ctx context.Context, id brig.SaveID, key []byte) error {
	p.unpack()
	return p.Provider.Unpack(ctx, id, key)
}

// CheckSave implements brig.Saver.
func (p *checkedProvider) CheckSave(ctx context.Context, in brig.Instance) error {
	p.check()
	return p.Provider.CheckSave(ctx, in)
}

// While the programs of the original prepare for the save of a paused copy, other sandboxes can
// be created. During the save itself, the copy occupies a creation slot.
func TestForkPausedHoldsCreationSlot(t *testing.T) {
	p := &checkedProvider{}
	h := newFixture(t, func(o *engine.Options) {
		p.Provider = o.Provider.(*fake.Provider)
		o.Provider = p
		o.Capacity = capacity.Options{MaxCreating: 1, MaxWait: 50 * time.Millisecond}
	})
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one"})
	var during, saving error
	p.check = func() { _, during = h.Create(ctx, brig.Spec{}) }
	h.provider.OnSave = func(brig.SaveID) error {
		_, saving = h.Create(ctx, brig.Spec{})
		return nil
	}
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Name: "base", Paused: true}); err != nil {
		t.Fatal(err)
	}
	if during != nil {
		t.Errorf("create while the programs prepare: %v", during)
	}
	if brig.KindOf(saving) != brig.RateLimited {
		t.Errorf("create during the save: %v", saving)
	}
}

// The resume of a paused copy holds a creation slot during the restore, but not while the copy's
// script runs, because the guest determines how long the script takes.
func TestResumeReleasesCreationSlotBeforeScript(t *testing.T) {
	h := newFixture(t, func(o *engine.Options) {
		o.Capacity = capacity.Options{MaxCreating: 1, MaxWait: 50 * time.Millisecond}
	})
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", Env: map[string]string{"BRIG_RESTORED": "sleep 29"}})
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{Name: "base", Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	var during error
	h.provider.OnRestore = func(brig.ID) error {
		_, during = h.Create(ctx, brig.Spec{})
		return nil
	}
	resumed := make(chan error, 1)
	go func() {
		_, err := h.Resume(ctx, "base")
		resumed <- err
	}()
	var in brig.Instance
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if in, err = h.provider.Recover(ctx, copies[0].ID, brig.Handle{}); err == nil {
			if list, _ := in.Execs(ctx); len(list) > 0 {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("the script has not started")
		}
	}
	if _, err := h.Create(ctx, brig.Spec{}); err != nil {
		t.Errorf("create while the script runs: %v", err)
	}
	select {
	case err := <-resumed:
		t.Errorf("the script was to run: %v", err)
	default:
		_ = in.Stop(ctx, 0, brig.Killed) // ends the script
		<-resumed
	}
	if brig.KindOf(during) != brig.RateLimited {
		t.Errorf("create during the restore: %v", during)
	}
}

// Each copy has its own placeholder of a secret, and also accepts the placeholders of the
// sandboxes that it was copied from. The original accepts only its own placeholder.
func TestForkAcceptsPlaceholdersOfOrigin(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	if _, err := h.PutSecret(ctx, brig.SecretChange{Name: "key", Value: []byte("the value"), Hosts: []string{"a.example"}}); err != nil {
		t.Fatal(err)
	}
	placeholders := func(name string) (out []string) {
		t.Helper()
		rec, err := h.store.Get(ctx, "acme", name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range h.Brokered(rec) {
			out = append(out, s.Placeholder)
		}
		return out
	}
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", Secrets: []brig.SecretUse{{Name: "key"}}})
	own := placeholders("one")
	name, known := "one", own
	for generation := range 3 {
		copies, err := h.Fork(ctx, name, brig.ForkSpec{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		a, b := placeholders(copies[0].Spec.Name), placeholders(copies[1].Spec.Name)
		if len(a) != generation+2 || a[0] == b[0] || !isSameSet(a[1:], known) || !isSameSet(b[1:], known) {
			t.Errorf("generation %d: the copies accept %q and %q, and the original %q", generation, a, b, known)
		}
		name, known = copies[0].Spec.Name, a
	}
	if now := placeholders("one"); len(now) != 1 || now[0] != own[0] {
		t.Errorf("the original accepts %q", now)
	}
	for range 13 {
		copies, err := h.Fork(ctx, name, brig.ForkSpec{})
		if err != nil {
			t.Fatal(err)
		}
		name = copies[0].Spec.Name
	}
	if _, err := h.Fork(ctx, name, brig.ForkSpec{}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("the copy of the 16th generation was forked: %v", err)
	}
}

func isSameSet(a, b []string) bool {
	has := map[string]int{}
	for _, s := range a {
		has[s]++
	}
	for _, s := range b {
		has[s]--
	}
	for _, n := range has {
		if n != 0 {
			return false
		}
	}
	return true
}

// Processes that continue in copies and in a resumed sandbox count against the tenant's quota of
// concurrent executions. Those of copies also count as usage, but those of a resumed sandbox were
// already counted at their start.
func TestCarriedProcessesCount(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", Pausable: true})
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "two"})
	start := func(name string) error {
		_, err := h.Processes(name).Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "60"}}})
		return err
	}
	quota := func(q brig.Quota) {
		t.Helper()
		if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: q}); err != nil {
			t.Fatal(err)
		}
	}
	wantUsage := func(want int64) {
		t.Helper()
		lines, err := h.TenantUsage(ctx, brig.UsageQuery{Tenant: "acme"})
		if err != nil || len(lines) != 1 || lines[0].Executions != want {
			t.Errorf("the usage is %+v, %v, want %d executions", lines, err, want)
		}
	}
	for range 2 {
		if err := start("one"); err != nil {
			t.Fatal(err)
		}
	}
	quota(brig.Quota{Executions: 5})
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 2}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("two copies with two processes each: %v", err)
	}
	wantUsage(2)
	quota(brig.Quota{ExecutionsPerDay: 3})
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{}); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("two more executions of three a day: %v", err)
	}
	quota(brig.Quota{Executions: 5})
	h.provider.OnSave = func(brig.SaveID) error {
		quota(brig.Quota{Executions: 2})
		if err := start("two"); brig.KindOf(err) != brig.RateLimited {
			t.Errorf("the third execution, during the save of two: %v", err)
		}
		quota(brig.Quota{Executions: 5})
		return nil
	}
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{})
	h.provider.OnSave = nil
	if err != nil {
		t.Fatal(err)
	}
	wantUsage(4)
	if err := start("two"); err != nil {
		t.Errorf("the fifth execution: %v", err)
	}
	if err := start("two"); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("the sixth execution: %v", err)
	}
	if err := h.Remove(ctx, copies[0].Spec.Name); err != nil {
		t.Fatal(err)
	}
	wantUsage(5)

	if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := h.getRecord(t, "one").Pause.Executions; n != 2 {
		t.Errorf("the save has %d processes, want 2", n)
	}
	for range 3 {
		err := start("two")
		for range 6000 { // the processes of the removed copy may still be ending
			if brig.KindOf(err) != brig.RateLimited {
				break
			}
			time.Sleep(10 * time.Millisecond)
			err = start("two")
		}
		if err != nil {
			t.Errorf("beside a paused sandbox: %v", err)
		}
	}
	if _, err := h.Resume(ctx, "one"); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("resume beyond the quota: %v", err)
	}
	quota(brig.Quota{Executions: 6})
	for range 6000 {
		if _, err := h.Resume(ctx, "one"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	wantNote(t, ctx, h, "one")
	if err := start("two"); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("the seventh execution: %v", err)
	}
	wantUsage(8)
	if list, err := h.Processes("one").List(ctx); err != nil || len(list) != 2 {
		t.Errorf("the resumed sandbox has the processes %v, %v", list, err)
	}
}
