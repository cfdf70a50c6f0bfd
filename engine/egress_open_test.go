package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// While the agent of a sandbox does not connect it to the network, the usage of
// all tenants is still counted, and the sandbox still reports its own. The agent
// has a limited time, whatever the caller's context. The control shows that the
// change of rules itself waits.
func TestSilentAgentDelaysNoCounts(t *testing.T) {
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
	asked, answer := make(chan time.Duration, 1), make(chan struct{})
	h.provider.OnUplink = func(ctx context.Context, _ brig.ID) error {
		end, _ := ctx.Deadline()
		asked <- time.Until(end)
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
	if left := <-asked; left <= 0 || left > time.Minute {
		t.Errorf("the agent has %v to answer", left)
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

// A sandbox that is removed while its agent connects it leaves no session.
func TestRemovedWhileAgentConnects(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	box, err := h.Create(ctx, brig.Spec{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	h.provider.OnUplink = func(context.Context, brig.ID) error {
		close(asked)
		<-answer
		return nil
	}
	changed := make(chan error, 1)
	go func() {
		_, err := h.SetEgress(ctx, "box", brig.Egress{Rules: []brig.EgressRule{{Host: "api.test"}}})
		changed <- err
	}()
	<-asked
	h.CloseEgress(box.ID)
	close(answer)
	<-changed
	if link := h.provider.Link(box.ID); link != nil {
		t.Error("the link is still open")
	}
}
