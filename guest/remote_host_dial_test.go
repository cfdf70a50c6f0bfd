package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// Concurrent callers share the stream that is being opened. Each caller waits only until its own
// context ends.
func TestRemoteHostOpensOnce(t *testing.T) {
	var opened atomic.Int32
	release, remote := make(chan struct{}), newTestRemoteHost(t, func(c net.Conn) { _ = wire.Write(c, wire.TypeOK, nil) })
	o := &RemoteHost{Label: "there", Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
		opened.Add(1)
		<-release
		return remote.Open(ctx)
	}}
	t.Cleanup(func() { o.Close() })
	first, cancel := context.WithCancel(t.Context())
	answers := make(chan error, 20)
	go func() {
		_, err := o.States(first)
		answers <- err
	}()
	for opened.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	short, done := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer done()
	if _, err := o.States(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who does not wait: %v", err)
	}
	for range cap(answers) - 1 {
		go func() {
			_, err := o.States(t.Context())
			answers <- err
		}()
	}
	cancel() // the first caller gives up, and the others still need the stream
	if err := <-answers; !errors.Is(err, context.Canceled) {
		t.Errorf("who goes: %v", err)
	}
	close(release)
	for range cap(answers) - 1 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d streams were opened", n)
	}
}
