package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// While an agent delays the connection of its sandbox to the network, the usage of
// all tenants is still counted, and the sandbox's own usage can still be read. The
// time of the agent is limited, regardless of the caller's context. As a control,
// the change of the rules itself waits for the agent.
func TestSilentAgentDoesNotDelayUsageCounting(t *testing.T) {
	h := newFixture(t, nil)
	rules := brig.Egress{Rules: []brig.EgressRule{{Host: "api.test"}}}
	ctx := withRole(t, brig.Operator)
	quiet, err := h.Create(ctx, brig.Spec{Name: "quiet"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := h.Create(ctx, brig.Spec{Name: "other", Egress: rules})
	if err != nil {
		t.Fatal(err)
	}
	requested, answer := make(chan time.Duration, 1), make(chan struct{})
	h.provider.OnUplink = func(ctx context.Context, _ brig.ID) error {
		end, _ := ctx.Deadline()
		requested <- time.Until(end)
		select {
		case <-answer:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	changed := make(chan error, 1)
	go func() {
		_, err := h.SetEgress(ctx, "quiet", rules)
		changed <- err
	}()
	if remaining := <-requested; remaining <= 0 || remaining > time.Minute {
		t.Errorf("the agent has %v to answer", remaining)
	}
	counted := make(chan error, 1)
	go func() {
		_, err := h.TenantUsage(ctx, brig.UsageQuery{})
		h.SessionUsage(quiet.ID)
		if err == nil {
			err = h.CountEgress(other.ID, 1)
		}
		counted <- err
	}()
	select {
	case err := <-counted:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("counts wait for the agent")
	}
	select {
	case err := <-changed:
		t.Errorf("control: the change did not wait for the agent: %v", err)
	default:
	}
	close(answer)
	if err := <-changed; err != nil {
		t.Error(err)
	}
	if h.provider.Link(quiet.ID) == nil {
		t.Error("the sandbox has no network")
	}
}

// A sandbox that is removed while its agent connects it to the network leaves no
// session.
func TestRemovalDuringConnectLeavesNoSession(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	box, err := h.Create(ctx, brig.Spec{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	requested, answer := make(chan struct{}), make(chan struct{})
	h.provider.OnUplink = func(context.Context, brig.ID) error {
		close(requested)
		<-answer
		return nil
	}
	changed := make(chan error, 1)
	go func() {
		_, err := h.SetEgress(ctx, "box", brig.Egress{Rules: []brig.EgressRule{{Host: "api.test"}}})
		changed <- err
	}()
	<-requested
	h.CloseEgress(box.ID)
	close(answer)
	<-changed
	if link := h.provider.Link(box.ID); link != nil {
		t.Error("the link is still open")
	}
}

// unreadableSecrets is a store that fails to read secrets while fail is set.
type unreadableSecrets struct {
	brig.Store
	fail bool
}

func (s *unreadableSecrets) GetSecret(ctx context.Context, tenant, name string) (*brig.SealedSecret, error) {
	if s.fail {
		return nil, errors.New("the disk is full")
	}
	return s.Store.GetSecret(ctx, tenant, name)
}

// The requests of a guest cause reads of its secrets. A removed secret causes no
// line in the server's log, and an unreadable secret causes at most one line per
// minute.
func TestGuestCannotFloodLog(t *testing.T) {
	var log bytes.Buffer
	store := &unreadableSecrets{}
	h := newFixture(t, func(o *engine.Options) {
		store.Store = o.Store
		o.Store, o.Log = store, slog.New(slog.NewTextHandler(&log, nil))
	})
	rec := &brig.Record{Sandbox: brig.Sandbox{ID: "box", Tenant: "acme", Spec: brig.Spec{Secrets: []brig.SecretUse{{Name: "removed"}}}}}
	lines := func() int { return strings.Count(log.String(), "failed to read a secret") }
	for range 100 {
		if got := h.Brokered(rec); len(got) != 0 {
			t.Fatalf("a removed secret is %v", got)
		}
	}
	if n := lines(); n != 0 {
		t.Errorf("a removed secret leaves %d lines", n)
	}
	store.fail = true
	for range 100 {
		if got := h.Brokered(rec); len(got) != 1 || got[0].Hosts[0] != "*" {
			t.Fatalf("a secret that cannot be read is %v", got)
		}
	}
	if n := lines(); n != 1 {
		t.Errorf("a secret that cannot be read leaves %d lines", n)
	}
	other := *rec
	other.ID = "other"
	h.Brokered(&other)
	if n := lines(); n != 2 {
		t.Errorf("control: of another sandbox too there are %d lines", n)
	}
}
