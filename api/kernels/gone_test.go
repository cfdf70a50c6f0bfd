package kernels

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// A kernel that has ended runs no code and stores no state.
func TestEndedKernelRejectsCode(t *testing.T) {
	d := New(Options{}) // a call to its Service would panic
	ctx := brig.WithActor(t.Context(), brig.Actor{Tenant: "acme"})
	n, err := d.newEphemeralKernel(brig.Tenant{Name: "acme"}, "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, epoch, err := n.begin(func(error) {}, false)
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
	if _, err := n.execute(ctx, cell{source: "1"}, eventSink{}); brig.KindOf(err) != brig.NotFound {
		t.Errorf("it runs code: %v", err)
	}
}

// An ephemeral kernel does not end while a client is connected, up to the kernel's maximum
// lifetime. Without a client, it ends after its idle timeout.
func TestConnectionKeepsEphemeralKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := brig.DefaultLimitRange()
		bounds.MaxLife = 10 * time.Hour
		d := New(Options{Idle: time.Minute, LimitRange: bounds})
		defer d.Close()
		made := func(id string) *ephemeralKernel {
			n, err := d.newEphemeralKernel(brig.Tenant{Name: "acme"}, id, nil)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		ended := func(n *ephemeralKernel) bool {
			synctest.Wait()
			return n.hasEnded()
		}
		connected, left, control := made("connected"), made("left"), made("control")
		hold := func(n *ephemeralKernel) func() {
			_, release, err := n.hold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		hold(connected)
		first, second := hold(left), hold(left)
		_, _, err := left.begin(func(error) {}, false)
		if err != nil {
			t.Fatal(err)
		}
		first()
		left.startIdle()
		time.Sleep(time.Hour)
		if ended(connected) || ended(left) || !ended(control) {
			t.Errorf("after an hour: connected %t, left %t, control %t", connected.hasEnded(), left.hasEnded(), control.hasEnded())
		}
		second()
		time.Sleep(2 * time.Minute)
		if !ended(left) || ended(connected) {
			t.Errorf("two minutes after the client left: left %t, connected %t", left.hasEnded(), connected.hasEnded())
		}
		time.Sleep(bounds.MaxLife)
		if !ended(connected) {
			t.Error("it outlives the maximum life")
		}
	})
}
