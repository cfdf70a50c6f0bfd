package servicetest

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// secretCases are the cases about secrets.
type secretCases struct{ Harness }

// testSecrets checks the contract of secrets and of the audit log. The tenant must
// be able to store secrets.
func (h secretCases) testSecrets(t *testing.T) {
	ctx := h.Context(t)
	plain, brokered := name(), name()
	value := "plain-" + name()
	put := func(c brig.SecretChange, value string) *brig.Secret {
		t.Helper()
		c.Value = []byte(value)
		got, err := h.Service.PutSecret(ctx, c)
		if err != nil {
			t.Fatalf("PutSecret: %v", err)
		}
		return got
	}
	if s := put(brig.SecretChange{Name: plain}, value); s.Version != 1 || s.Name != plain || s.Created.IsZero() {
		t.Errorf("PutSecret = %+v", s)
	}
	s := put(brig.SecretChange{Name: brokered, Hosts: []string{"api.example.com"}, Exclusive: new(true)}, "brokered-value")
	if len(s.Places) != 1 || s.Places[0] != brig.SecretHeader {
		t.Errorf("by default it is put into %v", s.Places)
	}
	if got := h.find(t, brokered); got == nil || !got.Exclusive || got.Hosts[0] != "api.example.com" {
		t.Errorf("Secrets has %+v", got)
	}
	t.Run("change", h.testChangeSecrets)
	t.Run("widen", h.testWidenSecrets)
	t.Run("use", func(t *testing.T) { h.testUseSecrets(t, plain, brokered, value) })
	t.Run("refuse", func(t *testing.T) { h.testRefuseSecrets(t, plain) })
	t.Run("other tenant", func(t *testing.T) {
		list, err := h.Other.Secrets(h.OtherContext(t))
		if err != nil || len(list) > 0 {
			t.Errorf("another tenant's secrets: %v, %v", list, err)
		}
		wantKind(t, "RemoveSecret", h.Other.RemoveSecret(h.OtherContext(t), plain), brig.NotFound)
		_, err = h.Other.Create(h.OtherContext(t), brig.Spec{Secrets: []brig.SecretUse{{Name: plain}}})
		wantField(t, "Create", err, "secrets[0].name")
	})
	t.Run("rotate the key", func(t *testing.T) {
		if n, err := h.Service.RotateKey(ctx); err != nil || n < 2 {
			t.Errorf("RotateKey = %d, %v", n, err)
		}
		box := h.sandbox(t, brig.Spec{Secrets: []brig.SecretUse{{Name: plain, Env: "V"}}})
		if got := h.env(t, box, "V"); got != value {
			t.Errorf("after the key was rotated V = %q", got)
		}
	})
	t.Run("audit", h.testAudit)
	for _, name := range []string{plain, brokered} {
		if err := h.Service.RemoveSecret(ctx, name); err != nil {
			t.Errorf("RemoveSecret: %v", err)
		}
		if h.find(t, name) != nil {
			t.Errorf("%s is there after its removal", name)
		}
	}
	wantKind(t, "RemoveSecret", h.Service.RemoveSecret(ctx, plain), brig.NotFound)
}

// env returns the value of an environment variable in a sandbox's commands.
func (h secretCases) env(t *testing.T, box *brig.Sandbox, name string) string {
	t.Helper()
	res, err := h.Service.Exec(h.Context(t), box.Spec.Name, h.cmd("env", name), brig.IO{})
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	return strings.TrimSuffix(string(res.Stdout.Head), "\n")
}

func (h secretCases) testUseSecrets(t *testing.T, plain, brokered, value string) {
	ctx := h.Context(t)
	box := h.sandbox(t, brig.Spec{Secrets: []brig.SecretUse{{Name: plain}, {Name: brokered, Env: "TOKEN"}}})
	variable := strings.ReplaceAll(strings.ToUpper(plain), "-", "_")
	if got := h.env(t, box, variable); got != value {
		t.Errorf("%s = %q", variable, got)
	}
	token := h.env(t, box, "TOKEN")
	if !strings.HasPrefix(token, "brig-secret-") || len(token) < 40 {
		t.Errorf("TOKEN = %q", token)
	}
	other := h.sandbox(t, brig.Spec{Secrets: []brig.SecretUse{{Name: brokered, Env: "TOKEN"}}})
	if got := h.env(t, other, "TOKEN"); got == token || h.env(t, box, "TOKEN") != token {
		t.Errorf("placeholders are %q and %q", token, got)
	}
	for what, s := range map[string]*brig.Sandbox{"created": box, "got": mustGet(t, h.Service.Get, h.Harness, box.Spec.Name)} {
		if len(s.Spec.Secrets) != 2 || s.Spec.Secrets[0].Env != variable || len(s.Spec.Env) != 0 {
			t.Errorf("%s: secrets %+v, env %v", what, s.Spec.Secrets, s.Spec.Env)
		}
	}
	if _, err := h.Service.PutSecret(ctx, brig.SecretChange{Name: plain, Value: []byte(value + "2")}); err != nil {
		t.Fatal(err)
	}
	if got := h.env(t, box, variable); got != value+"2" {
		t.Errorf("after another value was set %s = %q", variable, got)
	}
	if _, err := h.Service.PutSecret(ctx, brig.SecretChange{Name: plain, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
	xs, err := h.Service.ListExecs(ctx, box.Spec.Name)
	if err != nil || len(xs) == 0 {
		t.Fatalf("ListExecs = %d, %v", len(xs), err)
	}
	for _, x := range xs {
		if len(x.Command.Env) != 0 {
			t.Errorf("on record is %v", x.Command.Env)
		}
	}
	o, err := h.Service.Run(ctx, brig.Program{Command: h.argv("env", "V"), Secrets: []brig.SecretUse{{Name: plain, Env: "V"}}}, brig.IO{})
	if err != nil || string(o.Stdout.Head) != value+"\n" {
		t.Errorf("Run = %+v, %v", o, err)
	}
}

// testChangeSecrets checks that a change keeps the fields that it does not set.
func (h secretCases) testChangeSecrets(t *testing.T) {
	ctx := h.Context(t)
	all := brig.SecretChange{
		Name: name(), Value: []byte("the first value"), Hosts: []string{"api.example.com", "*.example.org"},
		Places: []brig.SecretPlace{brig.SecretQuery}, Exclusive: new(true), Plain: new(true), Allow: []string{"X-Tenant", "?region*"},
	}
	want, err := h.Service.PutSecret(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Service.RemoveSecret(context.WithoutCancel(ctx), all.Name) })
	for _, step := range []struct {
		what   string
		change brig.SecretChange
		after  func(*brig.Secret)
	}{
		{"a value", brig.SecretChange{Value: []byte("another value")}, func(*brig.Secret) {}},
		{"nothing", brig.SecretChange{}, func(*brig.Secret) {}},
		{"hosts", brig.SecretChange{Hosts: []string{"other.example.org"}}, func(s *brig.Secret) { s.Hosts = []string{"other.example.org"} }},
		{"places", brig.SecretChange{Value: []byte("another value"), Places: []brig.SecretPlace{brig.SecretBody}}, func(s *brig.Secret) { s.Places = []brig.SecretPlace{brig.SecretBody} }},
		{"exclusive", brig.SecretChange{Value: []byte("another value"), Exclusive: new(false)}, func(s *brig.Secret) { s.Exclusive = false }},
		{"allow", brig.SecretChange{Allow: []string{"?zone"}}, func(s *brig.Secret) { s.Allow = []string{"?zone"} }},
		{"plain", brig.SecretChange{Plain: new(false)}, func(s *brig.Secret) { s.Plain = false }},
		{"no places", brig.SecretChange{Value: []byte("another value"), Places: []brig.SecretPlace{}}, func(s *brig.Secret) { s.Places = []brig.SecretPlace{brig.SecretHeader} }},
	} {
		step.change.Name = all.Name
		got, err := h.Service.PutSecret(ctx, step.change)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		step.after(want)
		want.Version++
		want.Updated = got.Updated
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after a change of %s it is %+v, want %+v", step.what, got, want)
		}
	}
	// A value becomes visible only if the change sets Plain explicitly. The log
	// records this.
	hidden := brig.SecretChange{Name: all.Name, Value: []byte("a third value"), Hosts: []string{}}
	_, err = h.Service.PutSecret(ctx, hidden)
	wantKind(t, "without hosts", err, brig.FailedPrecondition)
	box := h.sandbox(t, brig.Spec{Secrets: []brig.SecretUse{{Name: all.Name, Env: "V"}}})
	if got := h.env(t, box, "V"); !strings.HasPrefix(got, "brig-secret-") {
		t.Errorf("a sandbox sees %q", got)
	}
	revealed := func() (n int) {
		page, err := h.Service.Audit(ctx, brig.AuditQuery{Since: want.Created, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Lines {
			if l.Op == brig.RevealedOp && l.Detail[brig.DetailSecrets] == all.Name {
				n++
			}
		}
		return n
	}
	if n := revealed(); n != 0 {
		t.Errorf("%d events report that the value was revealed, want 0", n)
	}
	hidden.Reveal = true
	got, err := h.Service.PutSecret(ctx, hidden)
	if err != nil || len(got.Hosts)+len(got.Places) > 0 || got.Exclusive || got.Plain || got.Allow != nil {
		t.Errorf("revealed it is %+v, %v", got, err)
	}
	if n := revealed(); n != 1 {
		t.Errorf("%d events report that the value was revealed, want 1", n)
	}
}

func mustGet(t *testing.T, get func(ctx context.Context, name string) (*brig.Sandbox, error), h Harness, name string) *brig.Sandbox {
	t.Helper()
	s, err := get(h.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h secretCases) testRefuseSecrets(t *testing.T, known string) {
	ctx := h.Context(t)
	for what, c := range map[string]struct {
		spec  brig.Spec
		field string
	}{
		"unknown":        {brig.Spec{Secrets: []brig.SecretUse{{Name: known}, {Name: "none"}}}, "secrets[1].name"},
		"no name":        {brig.Spec{Secrets: []brig.SecretUse{{Name: "No"}}}, "secrets[0].name"},
		"bad variable":   {brig.Spec{Secrets: []brig.SecretUse{{Name: known, Env: "A=B"}}}, "secrets[0].env"},
		"variable twice": {brig.Spec{Secrets: []brig.SecretUse{{Name: known, Env: "A"}, {Name: known, Env: "A"}}}, "secrets[1].env"},
		"variable taken": {brig.Spec{Env: map[string]string{"A": "b"}, Secrets: []brig.SecretUse{{Name: known, Env: "A"}}}, "secrets[0].env"},
	} {
		_, err := h.Service.Create(ctx, c.spec)
		wantField(t, what, err, c.field)
	}
	for what, c := range map[string]struct {
		secret brig.SecretChange
		value  string
		field  string
	}{
		"no name":      {brig.SecretChange{Name: "No"}, "v", "name"},
		"no value":     {brig.SecretChange{Name: "a"}, "", "value"},
		"NUL":          {brig.SecretChange{Name: "a"}, "a\x00b", "value"},
		"too long":     {brig.SecretChange{Name: "a"}, strings.Repeat("a", brig.MaxSecret+1), "value"},
		"too short":    {brig.SecretChange{Name: "a", Hosts: []string{"api.example.com"}}, "1234567", "value"},
		"line break":   {brig.SecretChange{Name: "a", Hosts: []string{"api.example.com"}}, "12345678\r\nX-A: b", "value"},
		"bad host":     {brig.SecretChange{Name: "a", Hosts: []string{"*"}}, "12345678", "hosts[0]"},
		"address":      {brig.SecretChange{Name: "a", Hosts: []string{"127.0.0.1"}}, "12345678", "hosts[0]"},
		"bad place":    {brig.SecretChange{Name: "a", Hosts: []string{"api.example.com"}, Places: []brig.SecretPlace{"path"}}, "12345678", "places[0]"},
		"no field":     {brig.SecretChange{Name: "a", Hosts: []string{"a.example.com"}, Allow: []string{"X-Tenant", "a b"}}, "12345678", "allow[1]"},
		"no user":      {brig.SecretChange{Name: "a", Hosts: []string{"a.example.com"}, Allow: []string{"user:me@example.com", "user:*", "user:a:b"}}, "12345678", "allow[2]"},
		"no hosts":     {brig.SecretChange{Name: "a", Exclusive: new(true)}, "12345678", "hosts"},
		"no hosts two": {brig.SecretChange{Name: "a", Places: []brig.SecretPlace{brig.SecretBody}}, "12345678", "hosts"},
	} {
		c.secret.Value = []byte(c.value)
		_, err := h.Service.PutSecret(ctx, c.secret)
		wantField(t, what, err, c.field)
		if c.value != "v" && len(c.value) > 2 && strings.Contains(err.Error(), c.value) {
			t.Errorf("%s: the error tells the value", what)
		}
	}
}

func (h secretCases) testAudit(t *testing.T) {
	ctx := h.Context(t)
	label := map[string]string{"audit": name()}
	begin := time.Now().Add(-time.Minute)
	box := h.sandbox(t, brig.Spec{Labels: label})
	if _, err := h.Service.Exec(ctx, box.Spec.Name, h.cmd("echo", "hi"), brig.IO{}); err != nil {
		t.Fatal(err)
	}
	if err := h.Service.Remove(ctx, box.Spec.Name); err != nil {
		t.Fatal(err)
	}
	want := "sandbox.create intent,sandbox.create outcome,sandbox.exec intent,sandbox.exec outcome,sandbox.remove intent,sandbox.end observed,sandbox.remove outcome"
	for what, q := range map[string]brig.AuditQuery{
		"by id":    {Sandbox: string(box.ID)},
		"by name":  {Sandbox: box.Spec.Name, Since: begin},
		"by label": {Labels: label, Until: time.Now().Add(time.Minute)},
		"by pages": {Sandbox: string(box.ID), Limit: 2},
	} {
		var got []string
		for {
			p, err := h.Service.Audit(ctx, q)
			if err != nil {
				t.Fatalf("Audit %s: %v", what, err)
			}
			for _, l := range p.Lines {
				got = append(got, l.Op+" "+string(l.Phase))
				if l.Seq > p.Head.Seq || l.Hash == [32]byte{} || l.Detail[brig.DetailLabel+"audit"] != label["audit"] {
					t.Errorf("%s: %+v, the head is %d", what, l, p.Head.Seq)
				}
			}
			if q.After = p.Next; p.Next == 0 {
				break
			}
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	p, err := h.Other.Audit(h.OtherContext(t), brig.AuditQuery{Sandbox: string(box.ID)})
	if err != nil || len(p.Lines) != 0 {
		t.Errorf("another tenant got %+v, %v", p, err)
	}
	_, err = h.Service.Audit(ctx, brig.AuditQuery{Limit: 1001})
	wantField(t, "Audit", err, "limit")
}
