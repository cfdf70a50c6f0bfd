package output

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// blockedWriter is a writer that blocks until free is closed.
type blockedWriter struct {
	free chan struct{}
	mu   sync.Mutex // guards the fields below
	got  []byte
	err  error
}

func (s *blockedWriter) Write(p []byte) (int, error) {
	<-s.free
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.got = append(s.got, p...)
	return len(p), nil
}

// For a caller that does not read, the relay buffers a bounded part of the output,
// and then blocks the process. After the process has ended, the relay accepts all
// remaining output immediately.
func TestRelayBlocksProcessOfSlowCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller := &blockedWriter{free: make(chan struct{})}
		r, sio := NewRelays(TenantBudget, ServerBudget).Wrap("acme", brig.IO{Stdout: caller}, func(error) { t.Error("it is lost") })
		var ended sync.WaitGroup
		var over atomic.Bool
		r.SetEndCheck(over.Load)
		piece := make([]byte, 16<<10)
		written := 0
		ended.Go(func() {
			for range 30 {
				if _, err := sio.Stdout.Write(piece); err != nil {
					t.Error(err)
				}
				r.mu.Lock()
				written++
				r.mu.Unlock()
			}
		})
		time.Sleep(time.Minute)
		r.mu.Lock()
		if r.size > relaySize+len(piece) || written == 30 {
			t.Errorf("%d bytes wait, %d pieces are written", r.size, written)
		}
		r.mu.Unlock()
		over.Store(true)
		ended.Wait() // returns although the caller does not read
		close(caller.free)
		if err := r.Flush(); err != nil || len(caller.got) != 30*len(piece) {
			t.Errorf("%d bytes were read: %v", len(caller.got), err)
		}
	})
}

// uncomparableWriter is a writer of an uncomparable type.
type uncomparableWriter struct {
	write func(p []byte) (int, error)
}

func (w uncomparableWriter) Write(p []byte) (int, error) { return w.write(p) }

// The relay accepts writers of any type, including uncomparable types such as
// those of the ephemeral kernels.
func TestRelayAcceptsUncomparableWriters(t *testing.T) {
	caller := &blockedWriter{free: make(chan struct{})}
	r, sio := NewRelays(TenantBudget, ServerBudget).Wrap("acme", brig.IO{Stdout: uncomparableWriter{caller.Write}, Stderr: uncomparableWriter{caller.Write}}, func(err error) { t.Error(err) })
	for range 5 {
		for _, w := range []io.Writer{sio.Stdout, sio.Stdout, sio.Stderr, sio.Stderr} {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(caller.free)
	if err := r.Flush(); err != nil || string(caller.got) != strings.Repeat("x", 20) {
		t.Errorf("%q was read: %v", caller.got, err)
	}
}

// After the caller has disconnected, the next write and flush return its error.
func TestRelayReportsDisconnectedCaller(t *testing.T) {
	errDisconnected := errors.New("the client disconnected")
	caller := &blockedWriter{free: make(chan struct{}), err: errDisconnected}
	close(caller.free)
	var lost error
	r, sio := NewRelays(TenantBudget, ServerBudget).Wrap("acme", brig.IO{Stdout: caller}, func(err error) { lost = err })
	for err := error(nil); !errors.Is(err, errDisconnected); {
		_, err = sio.Stdout.Write([]byte("x"))
	}
	if r.Flush() == nil || !errors.Is(lost, errDisconnected) {
		t.Errorf("the relay does not report its end: %v", lost)
	}
	if none, sio := NewRelays(TenantBudget, ServerBudget).Wrap("acme", brig.IO{}, nil); none != nil || sio.Stdout != nil || none.Flush() != nil {
		t.Error("there is a relay without a client")
	}
}

// Events that are larger than the budget, such as charts, are delivered. For
// callers that do not read, the buffered bytes exceed the budget by at most one
// event.
func TestRelayDeliversLargeEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := NewRelays(200<<10, 300<<10)
		chart := brig.CodeEvent{Output: &brig.Rich{Data: map[string]json.RawMessage{"image/png": make(json.RawMessage, 500<<10)}}}
		free := make(chan struct{})
		var delivered atomic.Int32
		var writers sync.WaitGroup
		for i := range 20 {
			r, on := rs.Events([]string{"acme", "rival", "third"}[i%3], func(brig.CodeEvent) error {
				<-free
				delivered.Add(1)
				return nil
			}, func(error) { t.Error("it is lost") })
			writers.Go(func() {
				for range 3 {
					if err := on(chart); err != nil {
						t.Error(err)
					}
				}
				if err := r.Flush(); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Minute)
		if limit := rs.all + eventSize(chart) + relayCost; rs.held > limit || rs.held < eventSize(chart) {
			t.Errorf("%d bytes are kept, want at most %d", rs.held, limit)
		}
		close(free)
		writers.Wait()
		if delivered.Load() != 60 || rs.held != 0 || len(rs.byTenant) != 0 {
			t.Errorf("%d of 60 were delivered, %d bytes are kept", delivered.Load(), rs.held)
		}
	})
}

// The buffered bytes of a tenant's streams are bounded, and so are those of all
// tenants. When the budget is exhausted, the stream of an ended process is
// truncated, and a running process blocks.
func TestRelayBudgetLimitsTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := NewRelays(200<<10, 300<<10)
		caller := &blockedWriter{free: make(chan struct{})}
		piece := make([]byte, 16<<10)
		var over atomic.Bool
		var writers sync.WaitGroup
		var cuts, whole atomic.Int32
		for i := range 20 {
			writers.Go(func() {
				r, sio := rs.Wrap([]string{"acme", "rival", "third"}[i%3], brig.IO{Stdout: caller}, func(error) { t.Error("it is lost") })
				r.SetEndCheck(over.Load)
				for range 20 {
					if _, err := sio.Stdout.Write(piece); err != nil {
						t.Error(err)
					}
				}
				writers.Go(func() {
					switch err := r.Flush(); {
					case err == nil:
						whole.Add(1)
					case brig.KindOf(err) == brig.RateLimited:
						cuts.Add(1)
					default:
						t.Error(err)
					}
				})
			})
		}
		limit := rs.all + 20*(len(piece)+relayCost)
		time.Sleep(time.Minute)
		if rs.held > limit || rs.held < rs.all/2 {
			t.Errorf("%d bytes are kept while they run", rs.held)
		}
		over.Store(true)
		time.Sleep(time.Minute)
		if rs.held > limit {
			t.Errorf("%d bytes are kept when they have ended", rs.held)
		}
		close(caller.free)
		writers.Wait()
		if cuts.Load() == 0 || cuts.Load()+whole.Load() != 20 || rs.held != 0 || len(rs.byTenant) != 0 {
			t.Errorf("%d were cut, %d are whole, %d bytes are kept", cuts.Load(), whole.Load(), rs.held)
		}
	})
}
