package servicetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// secrets checks what is promised of secrets and of the audit log. The tenant
// must be able to keep secrets.
func (h Harness) secrets(t *testing.T) {
	ctx := h.Context(t)
	plain, brokered := name(), name()
	value := "plain-" + name()
	put := func(s brig.Secret, value string) *brig.Secret {
		t.Helper()
		got, err := h.Service.PutSecret(ctx, s, []byte(value))
		if err != nil {
			t.Fatalf("PutSecret: %v", err)
		}
		return got
	}
	if s := put(brig.Secret{Name: plain}, value); s.Version != 1 || s.Name != plain || s.Created.IsZero() {
		t.Errorf("PutSecret = %+v", s)
	}
	s := put(brig.Secret{Name: brokered, Hosts: []string{"api.example.com"}, Exclusive: true}, "brokered-value")
	if len(s.Places) != 1 || s.Places[0] != brig.SecretHeader {
		t.Errorf("by default it is put into %v", s.Places)
	}
	find := func(svc brig.Service, name string) *brig.Secret {
		list, err := svc.Secrets(h.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Name == name {
				return s
			}
		}
		return nil
	}
	if got := find(h.Service, brokered); got == nil || !got.Exclusive || got.Hosts[0] != "api.example.com" {
		t.Errorf("Secrets has %+v", got)
	}
	t.Run("use", func(t *testing.T) { h.useSecrets(t, plain, brokered, value) })
	t.Run("refuse", func(t *testing.T) { h.refuseSecrets(t, plain) })
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
	t.Run("audit", h.audit)
	for _, name := range []string{plain, brokered} {
		if err := h.Service.RemoveSecret(ctx, name); err != nil {
			t.Errorf("RemoveSecret: %v", err)
		}
		if find(h.Service, name) != nil {
			t.Errorf("%s is there after its removal", name)
		}
	}
	wantKind(t, "RemoveSecret", h.Service.RemoveSecret(ctx, plain), brig.NotFound)
}

// env is a variable of a sandbox's commands.
func (h Harness) env(t *testing.T, box *brig.Sandbox, name string) string {
	t.Helper()
	res, err := h.Service.Exec(h.Context(t), box.Spec.Name, h.cmd("env", name), brig.IO{})
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	return strings.TrimSuffix(string(res.Stdout.Head), "\n")
}

func (h Harness) useSecrets(t *testing.T, plain, brokered, value string) {
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
	for what, s := range map[string]*brig.Sandbox{"created": box, "got": must(t, h.Service.Get, h, box.Spec.Name)} {
		if len(s.Spec.Secrets) != 2 || s.Spec.Secrets[0].Env != variable || len(s.Spec.Env) != 0 {
			t.Errorf("%s: secrets %+v, env %v", what, s.Spec.Secrets, s.Spec.Env)
		}
	}
	if _, err := h.Service.PutSecret(ctx, brig.Secret{Name: plain}, []byte(value+"2")); err != nil {
		t.Fatal(err)
	}
	if got := h.env(t, box, variable); got != value+"2" {
		t.Errorf("after another value was set %s = %q", variable, got)
	}
	if _, err := h.Service.PutSecret(ctx, brig.Secret{Name: plain}, []byte(value)); err != nil {
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

func must(t *testing.T, get func(ctx context.Context, name string) (*brig.Sandbox, error), h Harness, name string) *brig.Sandbox {
	t.Helper()
	s, err := get(h.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h Harness) refuseSecrets(t *testing.T, known string) {
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
		secret brig.Secret
		value  string
		field  string
	}{
		"no name":      {brig.Secret{Name: "No"}, "v", "name"},
		"no value":     {brig.Secret{Name: "a"}, "", "value"},
		"NUL":          {brig.Secret{Name: "a"}, "a\x00b", "value"},
		"too long":     {brig.Secret{Name: "a"}, strings.Repeat("a", brig.MaxSecret+1), "value"},
		"too short":    {brig.Secret{Name: "a", Hosts: []string{"api.example.com"}}, "1234567", "value"},
		"line break":   {brig.Secret{Name: "a", Hosts: []string{"api.example.com"}}, "12345678\r\nX-A: b", "value"},
		"bad host":     {brig.Secret{Name: "a", Hosts: []string{"*"}}, "12345678", "hosts[0]"},
		"address":      {brig.Secret{Name: "a", Hosts: []string{"127.0.0.1"}}, "12345678", "hosts[0]"},
		"bad place":    {brig.Secret{Name: "a", Hosts: []string{"api.example.com"}, Places: []brig.SecretPlace{"path"}}, "12345678", "places[0]"},
		"no hosts":     {brig.Secret{Name: "a", Exclusive: true}, "12345678", "hosts"},
		"no hosts two": {brig.Secret{Name: "a", Places: []brig.SecretPlace{brig.SecretBody}}, "12345678", "hosts"},
	} {
		_, err := h.Service.PutSecret(ctx, c.secret, []byte(c.value))
		wantField(t, what, err, c.field)
		if c.value != "v" && len(c.value) > 2 && strings.Contains(err.Error(), c.value) {
			t.Errorf("%s: the error tells the value", what)
		}
	}
}

func (h Harness) audit(t *testing.T) {
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
		t.Errorf("another tenant is told %+v, %v", p, err)
	}
	_, err = h.Service.Audit(ctx, brig.AuditQuery{Limit: 1001})
	wantField(t, "Audit", err, "limit")
}
