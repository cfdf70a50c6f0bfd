package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// Every file operation allows access as root only to callers that may run commands.
func TestRootFileAccessNeedsExec(t *testing.T) {
	h := newFixture(t, nil)
	if _, err := h.Create(withRole(t, brig.Member), brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	fs := h.Files("box")
	scoped := func(role brig.Role, scopes ...string) context.Context {
		return brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: role, Scopes: scopes})
	}
	for _, c := range []struct {
		who     string
		ctx     context.Context
		changes bool // whether the caller may change files
		root    bool
	}{
		{"a viewer", withRole(t, brig.Viewer), false, false},
		{"a member", withRole(t, brig.Member), true, true},
		{"a member for files alone", scoped(brig.Member, "file"), true, false},
		{"a member for files and commands", scoped(brig.Member, "file", "sandbox.exec"), true, true},
		{"a member for files and processes", scoped(brig.Member, "file", "process.start"), true, true},
		{"a viewer for files", scoped(brig.Viewer, "file", "sandbox.exec"), false, false},
	} {
		for _, user := range []string{"", "user", "root", "1234:1235"} {
			pathOf := func(name string) brig.Path { return brig.Path{Name: "/workspace/" + name, User: user} }
			plain := func(name string) brig.Path { return brig.Path{Name: "/workspace/" + name} }
			for op, do := range map[string]func() error{
				"stat": func() error { _, err := fs.Stat(c.ctx, pathOf("f")); return err },
				"list": func() error { _, err := fs.List(c.ctx, pathOf("."), 1); return err },
				"read": func() error {
					_, r, err := fs.Read(c.ctx, pathOf("f"), 0, -1)
					if err == nil {
						r.Close()
					}
					return err
				},
				"watch": func() error {
					err := fs.Watch(c.ctx, pathOf("."), false, func(brig.FileChange) error { return io.EOF })
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				},
				"mkdir": func() error { _, err := fs.MakeDir(c.ctx, pathOf("d")); return err },
				"write": func() error {
					_, err := fs.Write(c.ctx, pathOf("f"), brig.FileWrite{}, strings.NewReader("x"))
					return err
				},
				"remove":    func() error { return fs.Remove(c.ctx, pathOf("f")) },
				"move from": func() error { _, err := fs.Move(c.ctx, pathOf("f"), plain("g")); return err },
				"move to":   func() error { _, err := fs.Move(c.ctx, plain("f"), pathOf("g")); return err },
				"compose":   func() error { _, err := fs.Compose(c.ctx, []brig.Path{plain("f")}, pathOf("g")); return err },
				"compose of": func() error {
					_, err := fs.Compose(c.ctx, []brig.Path{pathOf("f")}, plain("g"))
					return err
				},
			} {
				reads := op == "stat" || op == "list" || op == "read" || op == "watch"
				allowed := (reads || c.changes) && (user == "" || user == "user" || c.root)
				if err := do(); (brig.KindOf(err) != brig.PermissionDenied) != allowed {
					t.Errorf("%s, %s as %q: %v; allowed is %v", c.who, op, user, err, allowed)
				}
			}
		}
	}
}
