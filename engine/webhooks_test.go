package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

const hookSecret = "0123456789abcdef"

func hookRequest(name string) brig.Webhook {
	return brig.Webhook{Name: name, URL: "https://hooks.example/x", Secret: hookSecret, Enabled: true}
}

// kinds returns the types and the names of events.
func kinds(events []brig.LifecycleEvent) string {
	var out []string
	for _, e := range events {
		out = append(out, string(e.Type)+" "+e.Name)
	}
	return strings.Join(out, ", ")
}

// Each change of a sandbox's state is one lifecycle event, whether a call caused it or not.
func TestLifecycleEvents(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	create := func(spec brig.Spec) *brig.Sandbox {
		t.Helper()
		box, err := h.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		return box
	}
	one := create(brig.Spec{Name: "one", TTL: time.Hour, Labels: map[string]string{"team": "red"}})
	create(brig.Spec{Name: "two"})
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(h.Extend(ctx, "one", time.Hour))
	must(h.Pause(ctx, "one", brig.PauseOptions{}))
	must(h.Resume(ctx, "one"))
	must(h.Fork(ctx, "one", brig.ForkSpec{Name: "copy"}))
	must(h.Kill(ctx, "one"))
	must(nil, h.Remove(ctx, "two"))
	if _, err := h.Create(ctx, brig.Spec{Name: "copy"}); err == nil {
		t.Fatal("a taken name")
	}
	must(h.Run(ctx, brig.Program{Command: []string{"echo", "hi"}}, brig.IO{}))

	for _, c := range []struct {
		q    brig.LifecycleQuery
		want string
	}{
		{brig.LifecycleQuery{OldestFirst: true, Limit: 100}, "created one, created two, updated one, paused one, resumed one, created copy, copied one, ended one, ended two"},
		{brig.LifecycleQuery{Limit: 2}, "ended two, ended one"},
		{brig.LifecycleQuery{Limit: 2, Offset: 1}, "ended one, copied one"},
		{brig.LifecycleQuery{Sandbox: string(one.ID), Types: []brig.LifecycleType{brig.LifecyclePaused, brig.LifecycleResumed}}, "resumed one, paused one"},
		{brig.LifecycleQuery{Sandbox: "two"}, "ended two, created two"},
		{brig.LifecycleQuery{Types: []brig.LifecycleType{brig.LifecycleCreated}, OldestFirst: true}, "created one, created two, created copy"},
		{brig.LifecycleQuery{Labels: map[string]string{"team": "red"}, Types: []brig.LifecycleType{brig.LifecycleCreated}}, "created copy, created one"},
		{brig.LifecycleQuery{Labels: map[string]string{"team": "blue"}}, ""},
		{brig.LifecycleQuery{Sandbox: "none"}, ""},
	} {
		got, err := h.Lifecycle(ctx, c.q)
		if err != nil || kinds(got) != c.want {
			t.Errorf("%+v: %q, %v, want %q", c.q, kinds(got), err, c.want)
		}
	}
	all, err := h.Lifecycle(ctx, brig.LifecycleQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, e := range all {
		ids[e.ID] = true
		if e.Type == brig.LifecycleEnded && e.Reason == "" {
			t.Errorf("%+v has no reason", e)
		}
	}
	if len(ids) != len(all) {
		t.Errorf("%d IDs of %d events", len(ids), len(all))
	}
	again, err := h.Lifecycle(ctx, brig.LifecycleQuery{Limit: 100})
	if err != nil || fmt.Sprint(again) != fmt.Sprint(all) {
		t.Errorf("the second list differs: %v", err)
	}
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Admin})
	if got, err := h.Lifecycle(rival, brig.LifecycleQuery{Sandbox: string(one.ID)}); err != nil || len(got) > 0 {
		t.Errorf("another tenant: %v, %v", got, err)
	}
	for field, q := range map[string]brig.LifecycleQuery{
		"limit": {Limit: 101}, "offset": {Offset: -1}, "types": {Types: []brig.LifecycleType{"none"}},
	} {
		_, err := h.Lifecycle(ctx, q)
		checkField(t, field, err, brig.InvalidArgument, field)
	}
}

func TestWebhooksAreChecked(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	for field, change := range map[string]func(w *brig.Webhook){
		"name": func(w *brig.Webhook) { w.Name = "" }, "secret": func(w *brig.Webhook) { w.Secret = "short" },
		"events": func(w *brig.Webhook) { w.Types = []brig.LifecycleType{"none"} },
	} {
		w := hookRequest("a")
		change(&w)
		_, err := h.CreateWebhook(ctx, w)
		checkField(t, field, err, brig.InvalidArgument, field)
	}
	for _, url := range []string{"", "http://hooks.example", "ftp://hooks.example", "https://", "https://user:pass@hooks.example", "/x", "https://h/" + strings.Repeat("a", 2048)} {
		w := hookRequest("a")
		w.URL = url
		_, err := h.CreateWebhook(ctx, w)
		checkField(t, url, err, brig.InvalidArgument, "url")
	}
	for range 20 {
		if _, err := h.CreateWebhook(ctx, hookRequest("a")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.CreateWebhook(ctx, hookRequest("a")); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("too many: %v", err)
	}
	private := newFixture(t, func(o *engine.Options) { o.PrivateWebhooks = true })
	w := hookRequest("a")
	w.URL = "http://127.0.0.1:1/x"
	if _, err := private.CreateWebhook(ctx, w); err != nil {
		t.Errorf("a private receiver: %v", err)
	}
}

// A change keeps what it does not name, and no response has the secret.
func TestWebhookChangesAreSelective(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	request := hookRequest("a")
	request.Types = []brig.LifecycleType{brig.LifecycleEnded}
	w, err := h.CreateWebhook(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	if w.Secret != "" || strings.Contains(fmt.Sprintf("%+v", w), hookSecret) {
		t.Errorf("the response has the secret: %+v", w)
	}
	secretOf := func(w *brig.Webhook) string {
		t.Helper()
		b, err := h.keys.Open(w.SealedSecret.Key, w.SealedSecret.Sealed, engine.WebhookSecretLocation(w)...)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	name, url, secret, off := "b", "https://other.example", "another secret of 20", false
	for _, c := range []struct {
		change brig.WebhookChange
		want   string
	}{
		{brig.WebhookChange{}, "a https://hooks.example/x true [ended] " + hookSecret},
		{brig.WebhookChange{Name: &name}, "b https://hooks.example/x true [ended] " + hookSecret},
		{brig.WebhookChange{URL: &url}, "b https://other.example true [ended] " + hookSecret},
		{brig.WebhookChange{Types: []brig.LifecycleType{}}, "b https://other.example true [] " + hookSecret},
		{brig.WebhookChange{Enabled: &off}, "b https://other.example false [] " + hookSecret},
		{brig.WebhookChange{Secret: &secret}, "b https://other.example false [] " + secret},
	} {
		got, err := h.UpdateWebhook(ctx, w.ID, c.change)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(got.Name, " ", got.URL, " ", got.Enabled, " ", got.Types, " ", secretOf(got)); text != c.want {
			t.Errorf("%+v: %q, want %q", c.change, text, c.want)
		}
	}
	if _, err := h.RotateKey(withRole(t, brig.Operator)); err != nil {
		t.Fatal(err)
	}
	rotated, err := h.GetWebhook(ctx, w.ID)
	if err != nil || rotated.SealedSecret.Key != h.keys.Primary() || secretOf(rotated) != secret {
		t.Errorf("after a new key: %+v, %v", rotated, err)
	}
	if _, err := h.ReplayWebhook(ctx, w.ID, time.Time{}); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("a replay of a disabled webhook: %v", err)
	}
	rival := brig.WithActor(t.Context(), brig.Actor{Name: "eve", Tenant: "rival", Role: brig.Admin})
	for what, call := range map[string]func(ctx context.Context) error{
		"get": func(ctx context.Context) error { _, err := h.GetWebhook(ctx, w.ID); return err },
		"update": func(ctx context.Context) error {
			_, err := h.UpdateWebhook(ctx, w.ID, brig.WebhookChange{})
			return err
		},
		"remove":     func(ctx context.Context) error { return h.RemoveWebhook(ctx, w.ID) },
		"deliveries": func(ctx context.Context) error { _, err := h.Deliveries(ctx, w.ID); return err },
		"replay":     func(ctx context.Context) error { _, err := h.ReplayWebhook(ctx, w.ID, time.Time{}); return err },
	} {
		if err := call(rival); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%s by another tenant: %v", what, err)
		}
	}
	if err := h.RemoveWebhook(ctx, w.ID); err != nil {
		t.Fatal(err)
	}
}
