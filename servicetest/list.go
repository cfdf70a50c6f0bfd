package servicetest

import (
	"slices"
	"testing"

	"github.com/brig-run/brig"
)

func (h Harness) testList(t *testing.T) {
	mark := name()
	var names []string // newest first
	for _, kind := range []string{"odd", "even", "odd"} {
		s := h.sandbox(t, brig.Spec{Labels: map[string]string{"mark": mark, "kind": kind}})
		names = slices.Insert(names, 0, s.Spec.Name)
	}
	if _, err := h.Service.Stop(h.Context(t), names[0], 0); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	for what, c := range map[string]struct {
		o    brig.ListOptions
		want []string
	}{
		"one label":   {brig.ListOptions{Labels: map[string]string{"mark": mark}}, names},
		"two labels":  {brig.ListOptions{Labels: map[string]string{"mark": mark, "kind": "odd"}}, []string{names[0], names[2]}},
		"no match":    {brig.ListOptions{Labels: map[string]string{"mark": mark, "kind": "none"}}, nil},
		"running":     {brig.ListOptions{Labels: map[string]string{"mark": mark}, States: []brig.State{brig.Running}}, names[1:]},
		"ended":       {brig.ListOptions{Labels: map[string]string{"mark": mark}, States: []brig.State{brig.Ended}}, names[:1]},
		"two states":  {brig.ListOptions{Labels: map[string]string{"mark": mark}, States: []brig.State{brig.Ended, brig.Running}}, names},
		"other state": {brig.ListOptions{Labels: map[string]string{"mark": mark}, States: []brig.State{brig.Creating}}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			page, err := h.Service.List(h.Context(t), c.o)
			if err != nil {
				t.Fatalf("List: %v", err)
			}
			if got := namesOf(page); !slices.Equal(got, c.want) || page.Next != "" {
				t.Errorf("List = %v and cursor %q, want %v and no cursor", got, page.Next, c.want)
			}
		})
	}
	t.Run("pages", func(t *testing.T) {
		o := brig.ListOptions{Labels: map[string]string{"mark": mark}, Limit: 2}
		first, err := h.Service.List(h.Context(t), o)
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if got := namesOf(first); !slices.Equal(got, names[:2]) || first.Next == "" {
			t.Fatalf("the first page is %v with cursor %q", got, first.Next)
		}
		o.Cursor = first.Next
		second, err := h.Service.List(h.Context(t), o)
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if got := namesOf(second); !slices.Equal(got, names[2:]) || second.Next != "" {
			t.Errorf("the second page is %v with cursor %q", got, second.Next)
		}
	})
	t.Run("bad options", func(t *testing.T) {
		_, err := h.Service.List(h.Context(t), brig.ListOptions{Limit: -1})
		wantField(t, "a negative limit", err, "limit")
		_, err = h.Service.List(h.Context(t), brig.ListOptions{Limit: 1001})
		wantField(t, "a limit of 1001", err, "limit")
		_, err = h.Service.List(h.Context(t), brig.ListOptions{Cursor: "not one of ours"})
		wantField(t, "a cursor of nobody's", err, "cursor")
	})
}

func namesOf(p *brig.Page) []string {
	var names []string
	for _, s := range p.Sandboxes {
		names = append(names, s.Spec.Name)
	}
	return names
}

func (h tenancyCases) testTenantIsolation(t *testing.T) {
	mine := name()
	_, before := h.Other.Get(h.OtherContext(t), mine)
	wantKind(t, "Get before there is one", before, brig.NotFound)
	s := h.sandbox(t, brig.Spec{Name: mine, Labels: map[string]string{"mark": mine}})
	_, after := h.Other.Get(h.OtherContext(t), mine)
	wantKind(t, "Get of another tenant's", after, brig.NotFound)
	if b, a := brig.AsError(before), brig.AsError(after); b != nil && a != nil && (b.Message != a.Message || b.Hint != a.Hint) {
		t.Errorf("another tenant's is %q, and one that never was is %q", a.Message, b.Message)
	}
	h.checkMissing(h.OtherContext(t), t, h.Other, mine)
	h.checkMissing(h.OtherContext(t), t, h.Other, string(s.ID))
	page, err := h.Other.List(h.OtherContext(t), brig.ListOptions{Labels: map[string]string{"mark": mine}})
	if err != nil || len(page.Sandboxes) > 0 {
		t.Errorf("another tenant lists %v, %v", page, err)
	}
	theirs, err := h.Other.Create(h.OtherContext(t), brig.Spec{Name: mine})
	if err != nil {
		t.Fatalf("another tenant may use the same name, but Create: %v", err)
	}
	if err := h.Other.Remove(h.OtherContext(t), mine); err != nil || theirs.ID == s.ID {
		t.Errorf("Remove of theirs, %s: %v", theirs.ID, err)
	}
	if got, err := h.Service.Get(h.Context(t), mine); err != nil || got.ID != s.ID || got.State != brig.Running {
		t.Errorf("mine is now %+v, %v", got, err)
	}
}

func (h Harness) testImages(t *testing.T) {
	if _, err := h.Service.Images(h.Context(t)); err != nil {
		t.Errorf("Images: %v", err)
	}
	_, err := h.Service.GetImage(h.Context(t), "no-such-image")
	wantKind(t, "GetImage", err, brig.NotFound)
	wantKind(t, "RemoveImage", h.Service.RemoveImage(h.Context(t), "no-such-image"), brig.NotFound)
}
