package engine_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// An error names the invalid field and no other field of the request. It
// repeats only a short part of the caller's input.
func TestErrorsNameTheField(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	box, err := h.Create(ctx, brig.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	long, argv := strings.Repeat("x", 200_000), []string{"true"}
	create := func(s brig.Spec) func() error {
		return func() error { _, err := h.Create(ctx, s); return err }
	}
	exec := func(c brig.Command) func() error {
		return func() error { _, err := h.Exec(ctx, box.Spec.Name, c, brig.IO{}); return err }
	}
	for name, c := range map[string]struct {
		field string
		do    func() error
	}{
		"user of all":      {"default_user", create(brig.Spec{User: "bob", Command: &brig.Command{Argv: argv, User: "root"}})},
		"directory of all": {"default_cwd", create(brig.Spec{Dir: "x", Command: &brig.Command{Argv: argv, Dir: "/"}})},
		"main user":        {"user", create(brig.Spec{Command: &brig.Command{Argv: argv, User: "bob"}})},
		"main directory":   {"cwd", create(brig.Spec{Command: &brig.Command{Argv: argv, Dir: "x"}})},
		"main environment": {"command_env", create(brig.Spec{Command: &brig.Command{Argv: argv, Env: map[string]string{"": "x"}}})},
		"environment":      {"env", exec(brig.Command{Argv: argv, Env: map[string]string{"": "x"}})},
		"long directory":   {"cwd", exec(brig.Command{Argv: argv, Dir: "/" + long})},
		"long argument":    {"command[1]", exec(brig.Command{Argv: []string{"echo", long}})},
		"long variable":    {"env", exec(brig.Command{Argv: argv, Env: map[string]string{"A": long}})},
		"long language":    {"language", func() error { _, err := brig.ParseLanguage(long); return err }},
		"long kernel":      {"language", func() error { _, err := brig.ParseContextLanguage(long); return err }},
		"no sandbox":       {"", func() error { _, err := h.Get(ctx, long); return err }},
		"no run":           {"", func() error { _, err := h.GetRun(ctx, long); return err }},
		"long arguments": {"arguments", func() error {
			_, err := h.Run(ctx, brig.Program{Language: brig.Python, Code: "1", Arguments: []byte(`{"a":"` + strings.Repeat("x", 17<<20) + `"}`)}, brig.IO{})
			return err
		}},
	} {
		e := brig.AsError(c.do())
		if e == nil || e.Field != c.field || len(e.Message) > 300 || e.Hint == "" {
			t.Errorf("%s: %.400v, field %q, want %q", name, e, brig.AsError(c.do()).Field, c.field)
		}
	}
}

// Routing returns NotFound for a tenant that does not exist.
func TestRoutingRejectsUnknownTenant(t *testing.T) {
	h := newFixture(t, nil)
	if r, err := h.Routing(withRole(t, brig.Operator), "nobody"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("%+v, %v", r, err)
	}
}
