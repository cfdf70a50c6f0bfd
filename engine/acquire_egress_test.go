package engine_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// awaitLink waits until the only sandbox has a network and returns its link.
func (h *fixture) awaitLink(t *testing.T) *fake.Link {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, id := range h.provider.Machines() {
			if link := h.provider.Link(id); link != nil {
				return link
			}
		}
	}
	t.Fatal("the sandbox has no network")
	return nil
}

// The traffic of a sandbox is charged to its tenant while the commands of its template run, even
// if the sandbox never becomes ready.
func TestTemplateTrafficIsCharged(t *testing.T) {
	var out outside
	h := newFixture(t, func(o *engine.Options) {
		out.options(o)
		o.Templates = []brig.Template{{Name: "web", Image: brig.HostImage, Ready: argv("sleep", "60"), ReadyTimeout: 5 * time.Minute}}
	})
	ctx := withRole(t, brig.Operator)
	calls, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := h.Create(calls, brig.Spec{Template: "web", Egress: toNet})
		ended <- err
	}()
	const n = 1000
	out.upload(t, h.awaitLink(t), n)
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged while the sandbox gets ready, want %d", got, n)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the create was to fail")
	}
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged after the create, want %d", got, n)
	}
	if machines := h.provider.Machines(); len(machines) > 0 {
		t.Errorf("there are the machines %v", machines)
	}
}

// failingRunningStore is a store that calls meanwhile and then fails when a running sandbox is
// recorded.
type failingRunningStore struct {
	brig.Store
	meanwhile func()
}

func (s *failingRunningStore) Put(ctx context.Context, rec *brig.Record, events ...brig.Event) error {
	if rec.State == brig.Running {
		s.meanwhile()
		return errors.New("the disk is full")
	}
	return s.Store.Put(ctx, rec, events...)
}

// The traffic of a main program is charged even if the sandbox cannot be recorded.
func TestUnrecordedSandboxTrafficIsCharged(t *testing.T) {
	var out outside
	var h *fixture
	const n = 1000
	h = newFixture(t, func(o *engine.Options) {
		out.options(o)
		o.Store = &failingRunningStore{o.Store, func() { out.upload(t, h.awaitLink(t), n) }}
	})
	ctx := withRole(t, brig.Operator)
	if _, err := h.Create(ctx, brig.Spec{Name: "one", Egress: toNet, Command: argv("sleep", "60")}); err == nil {
		t.Error("the create was to fail")
	}
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged, want %d", got, n)
	}
	if machines := h.provider.Machines(); len(machines) > 0 {
		t.Errorf("there are the machines %v", machines)
	}
}

// flood is the remote end of all connections of an engine's sandboxes. It sends data endlessly,
// and counts the bytes that the server has read.
type flood struct{ sent atomic.Int64 }

func (f *flood) options(o *engine.Options) {
	o.Egress.AllowWide = true
	o.Egress.Dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			b := make([]byte, 1000) // does not fill a buffer exactly
			for {
				n, err := theirs.Write(b)
				if f.sent.Add(int64(n)); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}
}

// awaitStall waits until the server stops reading.
func (f *flood) awaitStall(t *testing.T) {
	t.Helper()
	for last := int64(-1); last <= 0 || last != f.sent.Load(); time.Sleep(500 * time.Millisecond) {
		if t.Context().Err() != nil {
			t.Fatal("the bytes of the outside do not arrive")
		}
		last = f.sent.Load()
	}
}

// The received part of an unfinished write is charged when the sandbox loses its network.
func TestUnfinishedWritesAreCharged(t *testing.T) {
	for name, end := range map[string]func(context.Context, *fixture) error{
		"stop": func(ctx context.Context, h *fixture) error {
			_, err := h.Stop(ctx, "one", 0)
			return err
		},
		"rules": func(ctx context.Context, h *fixture) error {
			_, err := h.SetEgress(ctx, "one", brig.Egress{})
			return err
		},
		"pause": func(ctx context.Context, h *fixture) error {
			_, err := h.Pause(ctx, "one", brig.PauseOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f flood
			h := newFixture(t, f.options)
			ctx := withRole(t, brig.Operator)
			if _, err := h.Create(ctx, brig.Spec{Name: "one", Egress: toNet}); err != nil {
				t.Fatal(err)
			}
			link := h.awaitLink(t)
			if err := link.Send(segment(header.TCPFlagSyn, 1, 0, nil)); err != nil {
				t.Fatal(err)
			}
			p, err := link.Receive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			// The sandbox acknowledges no data, so a write soon blocks.
			ack := header.TCP(header.IPv4(p).Payload()).SequenceNumber() + 1
			if err := link.Send(segment(header.TCPFlagAck, 2, ack, nil)); err != nil {
				t.Fatal(err)
			}
			f.awaitStall(t)
			before := h.spentEgress(t, ctx)
			if err := end(ctx, h); err != nil {
				t.Fatal(err)
			}
			if after := h.spentEgress(t, ctx); before == 0 || after <= before {
				t.Errorf("%d bytes are charged, and %d before the end", after, before)
			}
		})
	}
}
