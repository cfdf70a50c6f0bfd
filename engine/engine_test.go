package engine_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/workspace"
)

// images has one image and rejects every other reference.
type images struct{ brig.ImageStore }

func (images) Resolve(_ context.Context, ref string) (*brig.Image, error) {
	if ref == brig.HostImage || ref == "sha256:host" {
		return &brig.Image{Digest: "sha256:host", Names: []string{brig.HostImage}}, nil
	}
	return nil, brig.Errorf(brig.NotFound, "no image %q", ref).WithHint("build one")
}

func (images) List(context.Context) ([]*brig.Image, error) { return nil, nil }
func (images) Remove(context.Context, string) error        { return nil }

// fixture is an engine with its in-memory store and its fake provider.
type fixture struct {
	*engine.Engine
	store    *mem.Store
	provider *fake.Provider
	keys     *seal.Keyring
}

func newFixture(t *testing.T, change func(*engine.Options)) *fixture {
	t.Helper()
	h := &fixture{store: mem.New(), provider: &fake.Provider{}}
	o := engine.Options{Store: h.store, Provider: h.provider, Images: images{}, LimitRange: brig.DefaultLimitRange(), Keys: newKeyring(t), Seed: []byte("seed")}
	objects, err := workspace.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.Workspaces = workspace.New(objects, nil)
	if change != nil {
		change(&o)
	}
	h.keys = o.Keys
	createTenants(t, o.Store, "acme", "rival", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9")
	h.Engine = engine.New(t.Context(), o)
	t.Cleanup(h.Close)
	return h
}

// newKeyring returns a keyring with a new key.
func newKeyring(t *testing.T) *seal.Keyring {
	t.Helper()
	k, err := seal.Open(t.Context(), seal.File{Path: filepath.Join(t.TempDir(), "keys")})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// createTenants creates tenants without quotas.
func createTenants(t testing.TB, s brig.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.PutTenant(t.Context(), &brig.Tenant{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
}

func withRole(t *testing.T, role brig.Role) context.Context {
	return brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: role})
}

// Every method of Service rejects a caller without a role, and a caller with a
// lower role than brig.Ops requires for the operation. The rejection is recorded as
// one audit event with the operation's name.
func TestEveryMethodIsGated(t *testing.T) {
	for _, op := range brig.Ops {
		for _, c := range []struct {
			role brig.Role
			want brig.Kind
		}{{brig.Nobody, brig.Unauthenticated}, {op.Role - 1, brig.PermissionDenied}} {
			if c.role == brig.Nobody && c.want == brig.PermissionDenied {
				continue
			}
			h := newFixture(t, nil)
			m := method(h.Engine, op.Method)
			if !m.IsValid() {
				t.Errorf("row %s: no method %s", op.Name, op.Method)
				continue
			}
			args := []reflect.Value{reflect.ValueOf(withRole(t, c.role))}
			for i := 1; i < m.Type().NumIn(); i++ {
				args = append(args, reflect.Zero(m.Type().In(i)))
			}
			out := m.Call(args)
			err, _ := out[len(out)-1].Interface().(error)
			if brig.KindOf(err) != c.want {
				t.Errorf("%s let a %s in: %v", op.Method, c.role, err)
			}
			events, storeErr := h.store.Events(t.Context(), 10)
			if storeErr != nil || len(events) != 1 || events[0].Op != op.Name || events[0].Kind != c.want || events[0].Phase != brig.Refused {
				t.Errorf("%s by a %s: events %+v", op.Method, c.role, events)
			}
		}
	}
}

// method returns the method that a row of brig.Ops names: "Exec", or
// "Files.Stat" for an empty sandbox name.
func method(e *engine.Engine, name string) reflect.Value {
	v := reflect.ValueOf(e)
	if of, rest, nested := strings.Cut(name, "."); nested {
		v, name = v.MethodByName(of).Call([]reflect.Value{reflect.ValueOf("")})[0], rest
	}
	return v.MethodByName(name)
}

// An operation that changes state records its intent and its outcome.
func TestChangesAreAudited(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	s, err := h.Create(ctx, brig.Spec{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	events, err := h.store.Events(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.Op+" "+string(e.Phase))
	}
	want := "sandbox.remove outcome,sandbox.end observed,sandbox.remove intent,sandbox.create outcome,sandbox.create intent"
	if strings.Join(got, ",") != want {
		t.Errorf("events %v", got)
	}
	if events[3].Sandbox != s.ID || events[3].Actor != "ann" || events[3].Tenant != "acme" {
		t.Errorf("event %+v does not say whose and which", events[3])
	}
}

// failNthPut fails the nth call of Put.
type failNthPut struct {
	*mem.Store
	n, puts int
}

func (f *failNthPut) Put(ctx context.Context, r *brig.Record, ev ...brig.Event) error {
	if f.puts++; f.puts == f.n {
		return errors.New("disk full")
	}
	return f.Store.Put(ctx, r, ev...)
}

func (f *failNthPut) Soon() brig.Store { return f }

// If Create fails at any step, it leaves no instance and no record, and its error
// does not contain the internal cause.
func TestCreateNeverLeaks(t *testing.T) {
	for n := 1; n <= 2; n++ {
		h := newFixture(t, func(o *engine.Options) { o.Store = &failNthPut{Store: o.Store.(*mem.Store), n: n} })
		ctx := withRole(t, brig.Member)
		_, err := h.Create(ctx, brig.Spec{Name: "one"})
		if brig.KindOf(err) != brig.Internal || strings.Contains(brig.AsError(err).Message, "disk") {
			t.Errorf("put %d fails: caller is told %v", n, brig.AsError(err).Message)
		}
		if m := h.provider.Machines(); len(m) != 0 {
			t.Errorf("put %d fails: machines %v are left", n, m)
		}
		if _, err := h.store.Get(ctx, "acme", "one"); brig.KindOf(err) != brig.NotFound {
			t.Errorf("put %d fails: a record is left (%v)", n, err)
		}
	}
	h := newFixture(t, nil)
	h.provider.CreateError = brig.Errorf(brig.CreationFailed, "no")
	if _, err := h.Create(withRole(t, brig.Member), brig.Spec{Name: "one"}); brig.KindOf(err) != brig.CreationFailed {
		t.Errorf("Create = %v", err)
	}
	if _, err := h.store.Get(t.Context(), "acme", "one"); brig.KindOf(err) != brig.NotFound {
		t.Error("a record is left")
	}
}

// The engine writes the record before it creates the instance.
func TestRecordIsWrittenBeforeInstance(t *testing.T) {
	h := newFixture(t, nil)
	h.provider.OnCreate = func(id brig.ID) {
		r, err := h.store.Get(t.Context(), "acme", string(id))
		if err != nil || r.State != brig.Creating {
			t.Errorf("while the machine is made: %+v, %v", r, err)
		}
	}
	if _, err := h.Create(withRole(t, brig.Member), brig.Spec{}); err != nil {
		t.Fatal(err)
	}
}

// A run leaves no instance and no record, regardless of its outcome.
func TestRunLeavesNoRecord(t *testing.T) {
	for _, cmd := range [][]string{{"echo", "hi"}, {"exit", "3"}, {"oom"}, {"crash"}, {"nonsense"}, {"sleep", "9"}} {
		h := newFixture(t, nil)
		ctx, cancel := context.WithTimeout(withRole(t, brig.Member), 200*time.Millisecond)
		_, err := h.Run(ctx, brig.Program{Command: cmd, Timeout: 100 * time.Millisecond}, brig.IO{})
		cancel()
		h.Close() // Close waits for background work
		if m := h.provider.Machines(); len(m) != 0 {
			t.Errorf("%v (%v): machines %v are left", cmd, err, m)
		}
		if err := h.store.All(t.Context(), func(r *brig.Record) error { return errors.New(r.Spec.Name) }); err != nil {
			t.Errorf("%v: record %v is left", cmd, err)
		}
	}
}

// A new engine on the same store and provider recovers running sandboxes, ends
// those whose creation was never acknowledged, and removes orphaned instances.
func TestRecoverKeepsRunningSandboxes(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	if _, err := h.Create(ctx, brig.Spec{Name: "kept", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	died, err := h.Create(ctx, brig.Spec{Name: "died"})
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	// A sandbox whose creation was not completed, and an instance without a record.
	half := &brig.Record{Sandbox: brig.Sandbox{ID: "half", Tenant: "acme", State: brig.Creating, Spec: brig.Spec{Name: "half"}}}
	if err := h.store.Put(ctx, half); err != nil {
		t.Fatal(err)
	}
	for _, id := range []brig.ID{"half", "orphan"} {
		if _, err := h.provider.Create(ctx, id, brig.Spec{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	in, err := h.provider.Recover(ctx, died.ID, brig.Handle{})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Stop(ctx, 0, brig.OutOfMem); err != nil {
		t.Fatal(err)
	}

	later := func() time.Time { return time.Now().Add(10 * time.Minute) }
	e := engine.New(t.Context(), engine.Options{Store: h.store, Provider: h.provider, Images: images{}, LimitRange: brig.DefaultLimitRange(), Now: later})
	defer e.Close()
	if err := e.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Exec(ctx, "kept", brig.Command{Argv: []string{"echo", "hi"}}, brig.IO{}); err != nil {
		t.Errorf("exec in what was adopted: %v", err)
	}
	s, err := e.Get(ctx, "died")
	if err != nil || s.State != brig.Ended || s.Exit == nil || !s.Exit.OOMKilled {
		t.Errorf("what died meanwhile: %+v, %v", s, err)
	}
	if want := in.Exit().At; !s.Ended.Equal(want) {
		t.Errorf("it ended at %v, want %v: not when it was recovered", s.Ended, want)
	}
	if r, err := e.Logs(ctx, "died", brig.LogOptions{}); err != nil {
		t.Errorf("its logs: %v", err)
	} else {
		r.Close()
	}
	if _, err := e.Get(ctx, "half"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("what was never acknowledged: %v", err)
	}
	if m := h.provider.Machines(); len(m) != 2 {
		t.Errorf("machines %v, want kept and died", m)
	}
}

func TestLogsReturnsLastLines(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	if _, err := h.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"a", "b", "c", "d"} {
		if _, err := h.Exec(ctx, "one", brig.Command{Argv: []string{"echo", w}}, brig.IO{}); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]string{0: "a\nb\nc\nd\n", 2: "c\nd\n", 9: "a\nb\nc\nd\n"} {
		r, err := h.Logs(ctx, "one", brig.LogOptions{Tail: n})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r)
		r.Close()
		if string(b) != want {
			t.Errorf("tail %d: %q", n, b)
		}
	}
}

func BenchmarkGate(b *testing.B) {
	store := mem.New()
	createTenants(b, store, "t")
	e := engine.New(b.Context(), engine.Options{Store: store, Provider: &fake.Provider{}, Images: images{}, LimitRange: brig.DefaultLimitRange()})
	defer e.Close()
	ctx := brig.WithActor(b.Context(), brig.Actor{Name: "a", Tenant: "t", Role: brig.Member})
	s, err := e.Create(ctx, brig.Spec{TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := e.Get(ctx, s.Spec.Name); err != nil {
			b.Fatal(err)
		}
	}
}
