package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func newWebhook(tenant, id string) *brig.Webhook {
	return &brig.Webhook{
		ID: id, Tenant: tenant, Name: "hook", URL: "https://hook.test/x", Enabled: true, Created: birth, Updated: birth,
		SealedSecret: brig.SealedKey{Key: "k", Sealed: []byte{1, 2}},
	}
}

// webhookRefs lists the webhooks of a tenant as "tenant/ID".
func webhookRefs(t *testing.T, s brig.Store, tenant string) (out []string) {
	t.Helper()
	list, err := s.Webhooks(t.Context(), tenant)
	mustSucceed(t, err)
	for _, w := range list {
		out = append(out, w.Tenant+"/"+w.ID)
	}
	return out
}

// testWebhooks verifies the revisions of webhooks, and that their deliveries end with them.
func testWebhooks(t *testing.T, s brig.Store) {
	ctx := t.Context()
	w := newWebhook("t", "w1")
	mustSucceed(t, s.PutWebhook(ctx, w))
	checkEqual(t, "the first Rev", w.Rev, int64(1))
	kind(t, s.PutWebhook(ctx, newWebhook("t", "w1")), brig.FailedPrecondition)
	stale := *w
	w.Enabled, w.Seq = false, 7
	mustSucceed(t, s.PutWebhook(ctx, w))
	kind(t, s.PutWebhook(ctx, &stale), brig.FailedPrecondition)
	got, err := s.GetWebhook(ctx, "t", "w1")
	mustSucceed(t, err)
	checkEqual(t, "the webhook", got, w)
	mustSucceed(t, s.PutWebhook(ctx, newWebhook("t", "w0")))
	mustSucceed(t, s.PutWebhook(ctx, newWebhook("u", "w1")))
	checkEqual(t, "the webhooks", webhookRefs(t, s, "t"), []string{"t/w0", "t/w1"})
	checkEqual(t, "all webhooks", webhookRefs(t, s, ""), []string{"t/w0", "t/w1", "u/w1"})
	for _, ref := range [][2]string{{"t", "none"}, {"nobody", "w1"}} {
		_, err := s.GetWebhook(ctx, ref[0], ref[1])
		kind(t, err, brig.NotFound)
		kind(t, s.DeleteWebhook(ctx, ref[0], ref[1]), brig.NotFound)
		kind(t, s.PutDelivery(ctx, &brig.Delivery{ID: "d", Tenant: ref[0], Webhook: ref[1]}), brig.NotFound)
	}

	for i := range brig.KeptDeliveries + 5 {
		mustSucceed(t, s.PutDelivery(ctx, &brig.Delivery{ID: fmt.Sprintf("d%03d", i), Tenant: "t", Webhook: "w1", Seq: int64(i), At: birth}))
	}
	again := &brig.Delivery{ID: "d050", Tenant: "t", Webhook: "w1", Seq: 50, At: birth.Add(time.Second), Attempts: 2, Status: 200, Delivered: true, Error: "é", Duration: 3}
	mustSucceed(t, s.PutDelivery(ctx, again))
	list, err := s.Deliveries(ctx, "t", "w1")
	mustSucceed(t, err)
	checkEqual(t, "the number of deliveries", len(list), brig.KeptDeliveries)
	checkEqual(t, "the repeated delivery", list[0], again)
	checkEqual(t, "the newest of the others", list[1].ID, fmt.Sprintf("d%03d", brig.KeptDeliveries+4))
	mustSucceed(t, s.DeleteWebhook(ctx, "t", "w1"))
	mustSucceed(t, s.PutWebhook(ctx, newWebhook("t", "w1")))
	list, err = s.Deliveries(ctx, "t", "w1")
	mustSucceed(t, err)
	checkEqual(t, "the deliveries of a new webhook", len(list), 0)
	mustSucceed(t, s.PutTenant(ctx, &brig.Tenant{Name: "t"}))
	mustSucceed(t, s.DeleteTenant(ctx, "t"))
	checkEqual(t, "the webhooks after the tenant was deleted", webhookRefs(t, s, ""), []string{"u/w1"})
}

// testWebhookRoundTrip verifies that a read returns exactly the written webhook.
func testWebhookRoundTrip(t *testing.T, s brig.Store) {
	for name, m := range map[string]func() *brig.Webhook{
		"full":  func() *brig.Webhook { return filled[brig.Webhook](t, false) },
		"empty": func() *brig.Webhook { return filled[brig.Webhook](t, true) },
		"zero":  func() *brig.Webhook { return new(brig.Webhook) },
	} {
		t.Run(name, func(t *testing.T) {
			var rev int64
			checkRoundTrip(t, func() *brig.Webhook {
				w := m()
				w.ID, w.Tenant, w.Secret, w.Rev = "id", name, "", rev
				return w
			}, func(w *brig.Webhook) error {
				err := s.PutWebhook(t.Context(), w)
				rev = w.Rev
				return err
			}, func() (*brig.Webhook, error) { return s.GetWebhook(t.Context(), name, "id") })
		})
	}
}

// testAuditOps verifies the selection of lines by operation, and the newest first.
func testAuditOps(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for i := range 6 {
		mustSucceed(t, s.Append(ctx, brig.Event{At: birth, Op: []string{"a", "b", "c"}[i%3], Tenant: "t", Actor: "ann", Phase: brig.Finish}))
	}
	seqs := func(q brig.AuditQuery) (out []int64) {
		lines, err := s.Audit(ctx, "t", q)
		mustSucceed(t, err)
		for _, l := range lines {
			out = append(out, l.Seq)
		}
		return out
	}
	for _, c := range []struct {
		q    brig.AuditQuery
		want []int64
	}{
		{brig.AuditQuery{Ops: []string{"a", "c"}}, []int64{1, 3, 4, 6}},
		{brig.AuditQuery{Ops: []string{"a", "c"}, NewestFirst: true}, []int64{6, 4, 3, 1}},
		{brig.AuditQuery{Ops: []string{"a", "c"}, NewestFirst: true, Limit: 2, Before: 6}, []int64{4, 3}},
		{brig.AuditQuery{Ops: []string{"b"}, After: 2}, []int64{5}},
		{brig.AuditQuery{Ops: []string{"none"}}, nil},
		{brig.AuditQuery{NewestFirst: true, Limit: 1}, []int64{6}},
	} {
		checkEqual(t, fmt.Sprintf("%+v", c.q), seqs(c.q), c.want)
	}
}
