package servicetest

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// testWidenSecrets checks that a caller must give the value to widen a secret's hosts or places.
// Otherwise, a caller could learn a value that it does not have.
func (h secretCases) testWidenSecrets(t *testing.T) {
	ctx := h.Context(t)
	base := brig.SecretChange{
		Name: name(), Value: []byte("the first value"), Hosts: []string{"api.example.com", "*.example.org"},
		Exclusive: new(true), Allow: []string{"X-Tenant"},
	}
	t.Cleanup(func() { _ = h.Service.RemoveSecret(context.WithoutCancel(ctx), base.Name) })
	for _, c := range []struct {
		field  string
		change brig.SecretChange
	}{
		{"hosts", brig.SecretChange{Hosts: []string{}, Reveal: true}},
		{"hosts", brig.SecretChange{Hosts: []string{"other.example.com"}}},
		{"hosts", brig.SecretChange{Hosts: []string{"api.example.com", "*.org"}}},
		{"places", brig.SecretChange{Places: []brig.SecretPlace{brig.SecretHeader, brig.SecretBody}}},
		{"exclusive", brig.SecretChange{Exclusive: new(false)}},
		{"allow", brig.SecretChange{Allow: []string{"X-*"}}},
		{"plain", brig.SecretChange{Plain: new(true)}},
	} {
		was, err := h.Service.PutSecret(ctx, base)
		if err != nil {
			t.Fatal(err)
		}
		box := h.sandbox(t, brig.Spec{Secrets: []brig.SecretUse{{Name: base.Name, Env: "V"}}})
		c.change.Name = base.Name
		_, err = h.Service.PutSecret(ctx, c.change)
		wantField(t, "without a value", err, c.field)
		if err != nil && !strings.Contains(brig.AsError(err).Hint, "value again") {
			t.Errorf("%s: the hint is %q", c.field, brig.AsError(err).Hint)
		}
		if now := h.find(t, base.Name); !reflect.DeepEqual(now, was) {
			t.Errorf("%s: a rejected change leaves %+v, want %+v", c.field, now, was)
		}
		// As a control, the same change succeeds with the value.
		c.change.Value = []byte("the second value")
		now, err := h.Service.PutSecret(ctx, c.change)
		if err != nil || now.Version != was.Version+1 {
			t.Errorf("%s with the value: %+v, %v", c.field, now, err)
		}
		if got := h.env(t, box, "V"); !strings.HasPrefix(got, "brig-secret-") {
			t.Errorf("%s: a sandbox that was there already sees %q", c.field, got)
		}
		if c.change.Reveal {
			later := h.sandbox(t, brig.Spec{Secrets: []brig.SecretUse{{Name: base.Name, Env: "V"}}})
			if got := h.env(t, later, "V"); got != "the second value" {
				t.Errorf("a sandbox that is created with the visible secret has %q", got)
			}
		}
	}
	h.testNarrowSecrets(t, base)
	h.testChangesInAudit(t, base.Name)
}

// find returns a secret.
func (h secretCases) find(t *testing.T, name string) *brig.Secret {
	t.Helper()
	list, err := h.Service.Secrets(h.Context(t))
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

// testNarrowSecrets checks that narrowing a secret needs no value, and applies to
// existing sandboxes with the secret.
func (h secretCases) testNarrowSecrets(t *testing.T, base brig.SecretChange) {
	ctx := h.Context(t)
	see := brig.SecretChange{Name: base.Name, Value: []byte("the third value"), Hosts: []string{}, Reveal: true}
	if _, err := h.Service.PutSecret(ctx, see); err != nil {
		t.Fatal(err)
	}
	box := h.sandbox(t, brig.Spec{Secrets: []brig.SecretUse{{Name: base.Name, Env: "V"}}})
	if got := h.env(t, box, "V"); got != "the third value" {
		t.Errorf("a sandbox with a visible secret has %q", got)
	}
	for _, c := range []brig.SecretChange{
		{Hosts: []string{"api.example.com", "*.example.org"}, Plain: new(true)},
		{Plain: new(false)}, {Exclusive: new(true)}, {Hosts: []string{"api.example.org"}},
	} {
		c.Name = base.Name
		if _, err := h.Service.PutSecret(ctx, c); err != nil {
			t.Errorf("%+v without a value: %v", c, err)
		}
	}
	if got := h.env(t, box, "V"); !strings.HasPrefix(got, "brig-secret-") {
		t.Errorf("after the secret has hosts, its next program sees %q", got)
	}
}

// testChangesInAudit checks that the lines about a secret's changes name its hosts.
func (h secretCases) testChangesInAudit(t *testing.T, name string) {
	page, err := h.Service.Audit(h.Context(t), brig.AuditQuery{Since: h.find(t, name).Created, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range page.Lines {
		if l.Op == brig.OpPutSecret.Name && l.Phase == brig.Finish && l.Detail[brig.DetailSecrets] == name {
			seen[l.Detail[brig.DetailFormerHosts]+" > "+l.Detail[brig.DetailHosts]+" "+l.Detail[brig.DetailWidens]+" "+string(l.Kind)] = true
		}
		for key, text := range l.Detail {
			if strings.Contains(text, "value") && key != brig.DetailCommand {
				t.Errorf("%s of %s is %q", key, l.Op, text)
			}
		}
	}
	base := "api.example.com,*.example.org"
	for _, want := range []string{
		" > " + base + "  ", base + " > other.example.com hosts invalid_argument", base + " > other.example.com hosts ",
		base + " > - hosts ", "- > " + base + "  ", base + " > " + base + " plain invalid_argument", base + " > api.example.org  ",
	} {
		if !seen[want] {
			t.Errorf("no line about %q: %v", want, seen)
		}
	}
}
