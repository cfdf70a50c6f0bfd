package guest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// The first process of a tree ends before the others. Exec returns once the agent has reported that
// the whole tree has ended.
func TestExecWaitsForKill(t *testing.T) {
	for name, how := range map[string]struct {
		timeout    time.Duration
		disconnect bool
	}{
		"timeout": {timeout: 10 * time.Millisecond},
		"hang up": {disconnect: true},
	} {
		t.Run(name, func(t *testing.T) {
			var gone atomic.Bool
			killed := make(chan struct{})
			g := &Guest{Grace: time.Minute, Dial: func(context.Context) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					r := wire.NewReader(theirs)
					f, err := r.Read()
					var call wire.Call
					if err != nil || json.Unmarshal(f.Payload, &call) != nil {
						t.Errorf("%v: %q", err, f.Payload)
						return
					}
					if call.Op == wire.OpKill {
						close(killed)
						time.Sleep(100 * time.Millisecond)
						gone.Store(true)
						_ = wire.Write(theirs, wire.TypeOK, nil)
						return
					}
					go func() { _, _ = r.Read() }() // reads the end of the input
					<-killed
					_ = wire.WriteJSON(theirs, wire.TypeExit, wire.Exit{Signal: 9})
				}()
				return ours, nil
			}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if how.disconnect {
				time.AfterFunc(10*time.Millisecond, cancel)
			}
			res, err := g.Exec(ctx, "x", brig.Command{Shell: "x", Timeout: how.timeout}, brig.IO{})
			if !gone.Load() {
				t.Error("Exec returned before the tree was gone")
			}
			if res.TimedOut == how.disconnect || errors.Is(err, context.Canceled) != how.disconnect {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
}
