package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// A call stops waiting for a connection when its context ends, even if the connection is meant to
// outlive the context.
func TestCallsEndWithContextWhileDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Hour):
				return errors.New("it is stuck for an hour")
			}
		}
		g := &Guest{Dial: func(ctx context.Context) (net.Conn, error) { return nil, stuck(ctx) }}
		o := &RemoteHost{Label: "there", Open: func(ctx context.Context) (io.ReadWriteCloser, error) { return nil, stuck(ctx) }}
		options := InstanceOptions{ID: "x", Dir: t.TempDir()}
		for name, call := range map[string]func(context.Context) error{
			"start": func(ctx context.Context) error {
				_, err := g.Start(ctx, "p", brig.Command{}, brig.Streams{})
				return err
			},
			"start carried": func(ctx context.Context) error {
				_, err := g.StartCarried(ctx, "p", brig.Command{}, brig.Streams{})
				return err
			},
			"port":   func(ctx context.Context) error { _, err := g.DialPort(ctx, 80); return err },
			"uplink": func(ctx context.Context) error { _, err := g.Uplink(ctx, nil); return err },
			"create": func(ctx context.Context) error {
				_, err := o.Create(ctx, options, brig.Spec{}, time.Now().Add(time.Hour), wire.Make{})
				return err
			},
			"watch": func(ctx context.Context) error { _, _, _, err := o.newInstance(ctx, options).watch(ctx); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begin := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 2*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
			cancel()
		}
		time.Sleep(2 * openTimeout) // until the attempts to open a stream have ended
	})
}
