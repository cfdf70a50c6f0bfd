package kernels

import (
	"testing"

	"github.com/brig-run/brig"
)

// A kernel that has ended runs no code and stores no state.
func TestEndedKernelRunsNothing(t *testing.T) {
	d := New(Options{}) // a call of its Service would panic
	ctx := brig.WithActor(t.Context(), brig.Actor{Tenant: "acme"})
	n, err := d.newEphemeralKernel(brig.Tenant{Name: "acme"}, "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, epoch, err := n.begin(func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	n.end(errInterrupted)
	n.end(errInterrupted)
	n.saveState(&brig.Outcome{Step: &brig.StepOutcome{State: []byte(`{}`)}}, epoch)
	n.startIdle()
	if n.state != nil || n.idle.Stop() {
		t.Errorf("it keeps %s, or its time runs on", n.state)
	}
	if _, err := n.execute(ctx, "1", eventSink{}); brig.KindOf(err) != brig.NotFound {
		t.Errorf("it runs code: %v", err)
	}
}
