package supervise

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLeaseExpiresUnlessRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lease
		if l.Renew(time.Hour, false) || l.IsTethered() || l.Remaining() != 0 {
			t.Error("a lease that has not begun can be renewed")
		}
		l.End()
		expired := 0
		l.Begin(time.Minute, true, func() { expired++ })
		time.Sleep(50 * time.Second)
		if !l.Renew(time.Minute, false) || !l.IsTethered() || l.Remaining() != time.Minute {
			t.Errorf("renewed: %v left, tethered %t", l.Remaining(), l.IsTethered())
		}
		time.Sleep(50 * time.Second)
		if expired != 0 || l.Remaining() != 10*time.Second {
			t.Errorf("expired %d times, with %v left", expired, l.Remaining())
		}
		if !l.Renew(20*time.Second, true) || l.IsTethered() {
			t.Error("it is still tethered")
		}
		time.Sleep(30 * time.Second)
		if synctest.Wait(); expired != 1 || l.Remaining() != 0 {
			t.Errorf("expired %d times, with %v left", expired, l.Remaining())
		}
	})
}

// A renewal after the end of the lease does not restart the timer.
func TestEndedLeaseCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lease
		l.Begin(time.Minute, true, func() { t.Error("an ended lease expires") })
		l.End()
		if l.Renew(time.Second, true) {
			t.Error("an ended lease can be renewed")
		}
		if l.End(); !l.IsTethered() {
			t.Error("a rejected renewal removes the tether")
		}
		time.Sleep(time.Hour)
	})
}
