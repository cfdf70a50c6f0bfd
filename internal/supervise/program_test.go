package supervise

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLingeringMainRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Main
		m.AwaitOutput() // does not wait for a program that was not started
		started := 0
		over := m.Done()
		for range 2 {
			m.Begin(func() {
				started++
				time.Sleep(time.Hour)
				m.RecordExit(3, true)
			})
		}
		begun := time.Now()
		if <-over; m.Code() != 3 || time.Since(begun) != time.Hour {
			t.Errorf("over after %v with code %d", time.Since(begun), m.Code())
		}
		if m.AwaitOutput(); started != 1 {
			t.Errorf("started %d times", started)
		}
	})
}

// The end of a sandbox does not wait long for the output of the main program. If the sandbox
// ends with the program, the channel of Done is not closed.
func TestEndWaitsBrieflyForMainOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for late, want := range map[time.Duration]time.Duration{200 * time.Millisecond: 200 * time.Millisecond, time.Minute: outputTimeout} {
			var m Main
			m.Begin(func() {
				m.RecordExit(4, false)
				time.Sleep(late)
			})
			begun := time.Now()
			if m.AwaitOutput(); time.Since(begun) != want || m.Code() != 4 {
				t.Errorf("waited %v for output that is late by %v, code %d", time.Since(begun), late, m.Code())
			}
			select {
			case <-m.Done():
				t.Error("the sandbox outlives it")
			default:
			}
		}
		time.Sleep(time.Hour) // the bubble ends with its goroutines
	})
}
