package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/tool"
)

// toolReturning returns a tool that returns a value.
func toolReturning(value string) brig.Tool { return brig.Tool{Name: "f", Source: "return " + value} }

// Successive calls of a tool reuse the same sandbox.
func TestToolCallsReuseSandbox(t *testing.T) {
	e := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	first, err := e.RunTool(ctx, toolReturning("1"))
	if err != nil || first.Text != "1" || first.Reused || first.Name != "f" {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := e.RunTool(ctx, toolReturning("2"))
	if err != nil || second.Text != "2" || !second.Reused || second.Sandbox != first.Sandbox {
		t.Fatalf("%+v, %v", second, err)
	}
}

// A caller cannot create a sandbox with the labels of a tool sandbox, because the
// engine would run the tenant's tools in it, with their secrets.
func TestToolLabelsAreReserved(t *testing.T) {
	e := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	for k, ok := range map[string]bool{"brig.tool.ready": false, "brig.tool.": false, "brig.tool": true, "brig.e2b/door": true, "tool": true} {
		labels := map[string]string{k: "x"}
		_, create := e.Create(ctx, brig.Spec{Labels: labels})
		_, run := e.Run(ctx, brig.Program{Command: []string{"echo"}, Labels: labels}, brig.IO{})
		for what, err := range map[string]error{"a sandbox": create, "a program": run} {
			if (err == nil) != ok || err != nil && brig.AsError(err).Field != "labels" {
				t.Errorf("%s with %q: %v", what, k, err)
			}
		}
	}
	res, err := e.RunTool(ctx, toolReturning("1"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := e.Get(ctx, res.Sandbox); err != nil || b.Spec.Labels["brig.tool.ready"] == "" {
		t.Errorf("the server's own box: %+v, %v", b, err)
	}
}

// withPackages returns an option that allows an engine to install the packages of
// tools.
func withPackages(t *testing.T) func(*engine.Options) {
	shelf := &tool.LayerCache{Dir: filepath.Join(t.TempDir(), "layers"), MaxLayer: brig.GiB}
	return func(o *engine.Options) { o.Tools.Layers = shelf }
}

// nextServer returns a new server that recovers the instances of h.
func (h *fixture) nextServer(t *testing.T, change func(*engine.Options)) *engine.Engine {
	t.Helper()
	o := engine.Options{Store: h.store, Provider: h.provider, Images: images{}, LimitRange: brig.DefaultLimitRange(), Keys: newKeyring(t)}
	if change != nil {
		change(&o)
	}
	e := engine.New(t.Context(), o)
	t.Cleanup(e.Close)
	if err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// If a server dies while it installs packages in a tool sandbox, the next server
// does not use the sandbox. It uses only sandboxes whose packages are completely
// installed.
func TestIncompleteToolSandboxIsNotUsed(t *testing.T) {
	packages := withPackages(t)
	h := newFixture(t, packages)
	ctx := withRole(t, brig.Member)
	with := toolReturning("1")
	with.Python = []string{"cowsay"}
	var cut []*brig.Sandbox
	h.provider.OnInstall = func() {
		page, err := h.List(ctx, brig.ListOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		cut = page.Sandboxes
	}
	res, err := h.RunTool(ctx, with)
	if err != nil || res.Error != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	unready := false
	for _, b := range cut {
		unready = unready || b.Spec.Name == res.Sandbox && b.Spec.Labels["brig.tool.ready"] == ""
	}
	if b, err := h.Get(ctx, res.Sandbox); err != nil || !unready || b.Spec.Labels["brig.tool.ready"] == "" {
		t.Fatalf("while packages are installed there are %+v, and then %+v, %v", cut, b, err)
	}
	e := h.nextServer(t, packages)
	if again, err := e.RunTool(ctx, with); err != nil || !again.Reused || again.Sandbox != res.Sandbox {
		t.Fatalf("a box with its packages: %+v, %v", again, err)
	}
	// Restore the state that the record has during the installation.
	rec, err := h.store.Get(ctx, "acme", res.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	delete(rec.Spec.Labels, "brig.tool.ready")
	if err := h.store.Put(ctx, rec); err != nil {
		t.Fatal(err)
	}
	third, err := h.nextServer(t, packages).RunTool(ctx, with)
	if err != nil || third.Reused {
		t.Errorf("a box without its packages: %+v, %v", third, err)
	}
	if _, err := h.Get(ctx, res.Sandbox); brig.KindOf(err) != brig.NotFound {
		t.Errorf("it stays: %v", err)
	}
}

// The renewal or removal of a setup ends its sandboxes, including those of an
// earlier server, but no other sandboxes.
func TestToolSandboxesOfPreviousServerEnd(t *testing.T) {
	for what, end := range map[string]func(*engine.Engine, *testing.T, string) error{
		"renewed": func(e *engine.Engine, t *testing.T, _ string) error {
			_, err := e.RenewToolSetup(withRole(t, brig.Member), brig.ToolLocal)
			return err
		},
		"removed": func(e *engine.Engine, t *testing.T, id string) error {
			return e.RemoveToolSetup(withRole(t, brig.Member), id)
		},
	} {
		t.Run(what, func(t *testing.T) {
			h := newFixture(t, nil)
			ctx := withRole(t, brig.Member)
			if _, err := h.Create(ctx, brig.Spec{Name: "other"}); err != nil {
				t.Fatal(err)
			}
			s, err := h.PutToolSetup(ctx, brig.ToolSetup{Kind: brig.ToolLocal})
			if err != nil {
				t.Fatal(err)
			}
			res, err := h.RunTool(ctx, toolReturning("1"))
			if err != nil {
				t.Fatal(err)
			}
			rivals, err := h.RunTool(brig.WithActor(ctx, brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Member}), toolReturning("1"))
			if err != nil {
				t.Fatal(err)
			}
			e := h.nextServer(t, nil)
			if err := end(e, t, s.ID); err != nil {
				t.Fatal(err)
			}
			e.Close() // waits until the sandboxes have ended
			if _, err := h.store.Get(ctx, "acme", res.Sandbox); brig.KindOf(err) != brig.NotFound {
				t.Errorf("its box stays: %v", err)
			}
			for tenant, name := range map[string]string{"acme": "other", "rival": rivals.Sandbox} {
				if rec, err := h.store.Get(ctx, tenant, name); err != nil || rec.State != brig.Running {
					t.Errorf("%s of %s: %+v, %v", name, tenant, rec, err)
				}
			}
		})
	}
}

// removingStore is a store that removes a variable after it has been read.
type removingStore struct {
	brig.Store
	armed bool
}

func (s *removingStore) GetToolVariable(ctx context.Context, tenant, id string) (*brig.SealedToolVariable, error) {
	x, err := s.Store.GetToolVariable(ctx, tenant, id)
	return x, errors.Join(err, s.remove(ctx, x))
}

func (s *removingStore) AllToolVariables(ctx context.Context) ([]*brig.SealedToolVariable, error) {
	list, err := s.Store.AllToolVariables(ctx)
	for _, x := range list {
		err = errors.Join(err, s.remove(ctx, x))
	}
	return list, err
}

func (s *removingStore) remove(ctx context.Context, x *brig.SealedToolVariable) error {
	if !s.armed || x == nil {
		return nil
	}
	return s.DeleteToolVariable(ctx, x.Tenant, x.ID)
}

// A caller that may change variables but may not list their values cannot obtain a
// value by changing another field.
func TestToolVariableChangeHidesValue(t *testing.T) {
	e := newFixture(t, nil)
	admin := withRole(t, brig.Admin)
	setup, err := e.PutToolSetup(admin, brig.ToolSetup{Kind: brig.ToolLocal})
	if err != nil {
		t.Fatal(err)
	}
	x, err := e.PutToolVariable(admin, brig.ToolVariable{Setup: setup.ID, Key: "K", Value: "the value"})
	if err != nil {
		t.Fatal(err)
	}
	changer := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "acme", Role: brig.Member, Scopes: []string{brig.OpChangeToolVariable.Name}})
	note, value := "a note", "another value"
	got, err := e.ChangeToolVariable(changer, x.ID, brig.ToolVariableChange{Description: &note})
	if err != nil || got.Value != "" || got.Description != note {
		t.Errorf("a change of the description: %+v, %v", got, err)
	}
	// The controls: a caller that may list values receives the unchanged value, and
	// a caller that sets a value receives it in the response.
	if got, err := e.ChangeToolVariable(admin, x.ID, brig.ToolVariableChange{Description: &note}); err != nil || got.Value != "the value" {
		t.Errorf("by an administrator: %+v, %v", got, err)
	}
	if got, err := e.ChangeToolVariable(changer, x.ID, brig.ToolVariableChange{Value: &value}); err != nil || got.Value != value {
		t.Errorf("a change of the value: %+v, %v", got, err)
	}
}

// If a variable is removed during its change or re-encryption, it stays
// removed.
func TestToolVariablesStayRemoved(t *testing.T) {
	store := &removingStore{Store: mem.New()}
	e := newFixture(t, func(o *engine.Options) { o.Store = store })
	ctx := withRole(t, brig.Admin)
	s, err := e.PutToolSetup(ctx, brig.ToolSetup{Kind: brig.ToolLocal})
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func(id string) error{
		"changed": func(id string) error {
			value := "new"
			_, err := e.ChangeToolVariable(ctx, id, brig.ToolVariableChange{Value: &value})
			if brig.KindOf(err) != brig.NotFound {
				return fmt.Errorf("it was changed: %v", err)
			}
			return nil
		},
		"encrypted anew": func(string) error {
			_, err := e.RotateKey(withRole(t, brig.Operator))
			return err
		},
	} {
		x, err := e.PutToolVariable(ctx, brig.ToolVariable{Setup: s.ID, Key: "K", Value: "v"})
		if err != nil {
			t.Fatal(err)
		}
		store.armed = true
		if err := f(x.ID); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		store.armed = false
		if list, err := e.ToolVariables(ctx, s.ID); err != nil || len(list) != 0 {
			t.Errorf("%s: %+v, %v", what, list, err)
		}
	}
}

// endingStore is a store that calls end before it reads a record.
type endingStore struct {
	brig.Store
	end func(id string)
}

func (s *endingStore) Get(ctx context.Context, tenant, name string) (*brig.Record, error) {
	if s.end != nil {
		s.end(name)
	}
	return s.Store.Get(ctx, tenant, name)
}

// If a tool sandbox ends before a call uses it, the call uses a new sandbox.
func TestEndedToolBoxIsReplaced(t *testing.T) {
	store := &endingStore{Store: mem.New()}
	e := newFixture(t, func(o *engine.Options) { o.Store = store })
	ctx := withRole(t, brig.Member)
	first, err := e.RunTool(ctx, toolReturning("1"))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := e.Get(ctx, first.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	store.end = func(name string) {
		if name != string(rec.ID) {
			return
		}
		once.Do(func() {
			in, err := e.provider.Recover(ctx, rec.ID, brig.Handle{})
			if err == nil {
				err = in.Stop(ctx, 0, brig.LeaseExpired)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	second, err := e.RunTool(ctx, toolReturning("2"))
	if err != nil || second.Text != "2" || second.Reused || second.Sandbox == first.Sandbox {
		t.Errorf("%+v, %v", second, err)
	}
}
