package engine_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// parkingProvider is a fake provider whose interpreters must be parked before a
// save.
type parkingProvider struct {
	*fake.Provider
	park  func(context.Context, brig.Process) (brig.Process, error)
	start func(brig.Process) brig.Process                  // nil for no change
	execs func(context.Context) ([]*brig.Execution, error) // nil for no change
}

type parkingInstance struct {
	brig.Instance
	p *parkingProvider
}

// parkedProcess is a process that was parked.
type parkedProcess struct{ brig.Process }

func (p *parkingProvider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	in, err := p.Provider.Create(ctx, id, spec, lease)
	if err != nil {
		return nil, err
	}
	return &parkingInstance{in, p}, nil
}

func (p *parkingProvider) CheckSave(ctx context.Context, in brig.Instance) error {
	return p.Provider.CheckSave(ctx, in.(*parkingInstance).Instance)
}

func (p *parkingProvider) Save(ctx context.Context, in brig.Instance, to brig.SaveID, o brig.SaveOptions) (*brig.Save, error) {
	return p.Provider.Save(ctx, in.(*parkingInstance).Instance, to, o)
}

func (i *parkingInstance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	p, err := i.Instance.Start(ctx, id, cmd, s)
	if err == nil && i.p.start != nil {
		p = i.p.start(p)
	}
	return p, err
}

func (i *parkingInstance) Execs(ctx context.Context) ([]*brig.Execution, error) {
	if i.p.execs != nil {
		return i.p.execs(ctx)
	}
	return i.Instance.Execs(ctx)
}

// Keep does nothing, because the fake provider cannot save instances with kept
// interpreters.
func (i *parkingInstance) Keep(context.Context, brig.Process, []byte) error { return nil }

func (i *parkingInstance) Park(ctx context.Context, p brig.Process, _ func(string) error) (brig.Process, error) {
	return i.p.park(ctx, p)
}

// An interpreter that has ended, or ends while it is parked, does not prevent a pause. A running
// interpreter that cannot be parked prevents it.
func TestEndedInterpreterDoesNotPreventPause(t *testing.T) {
	ended := brig.Errorf(brig.NotFound, "the interpreter has ended")
	for _, c := range []struct {
		name string
		park func(context.Context, brig.Process) (brig.Process, error)
		want brig.State
	}{
		{"it has ended", func(ctx context.Context, p brig.Process) (brig.Process, error) {
			return nil, errors.Join(ended, p.Kill(ctx))
		}, brig.Paused},
		{"its end is reported later", func(ctx context.Context, p brig.Process) (brig.Process, error) {
			time.AfterFunc(time.Second, func() { _ = p.Kill(context.WithoutCancel(ctx)) })
			return nil, ended
		}, brig.Paused},
		{"it ends once it is parked", func(ctx context.Context, p brig.Process) (brig.Process, error) {
			return parkedProcess{p}, p.Kill(ctx)
		}, brig.Paused},
		{"its end is never reported", func(context.Context, brig.Process) (brig.Process, error) {
			return nil, ended
		}, brig.Running},
		{"it does not answer", func(context.Context, brig.Process) (brig.Process, error) {
			return nil, errors.New("no answer")
		}, brig.Running},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, ctx := newParkingFixture(t, &parkingProvider{park: c.park})
				if _, err := h.RunCode(ctx, "box", brig.Code{Source: "set x 1"}, nil); err != nil {
					t.Fatal(err)
				}
				_, err := h.Pause(ctx, "box", brig.PauseOptions{})
				if now := h.getRecord(t, "box"); now.State != c.want || (err == nil) != (c.want == brig.Paused) {
					t.Errorf("after the pause it is %s: %v", now.State, err)
				}
			})
		})
	}
}

// newParkingFixture returns a fixture with the provider p and a sandbox named
// "box".
func newParkingFixture(t *testing.T, p *parkingProvider) (*fixture, context.Context) {
	t.Helper()
	h := newFixture(t, func(o *engine.Options) {
		p.Provider = o.Provider.(*fake.Provider)
		o.Provider = p
	})
	ctx := withRole(t, brig.Member)
	if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Remove(context.WithoutCancel(ctx), "box") }) // its interpreter would outlive the bubble
	return h, ctx
}

// silentProcess is an interpreter that neither reports its start nor ends by
// itself.
type silentProcess struct {
	brig.Process
	killed chan struct{}
}

func (silentProcess) Receive() (brig.From, []byte, error) { return 0, nil, io.EOF }

func (p silentProcess) Kill(ctx context.Context) error {
	close(p.killed)
	return p.Process.Kill(ctx)
}

// When a call returns because its interpreter did not start, the interpreter has been killed, so
// that it does not prevent a later pause.
func TestInterpreterThatDoesNotStartIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed := make(chan struct{})
		h, ctx := newParkingFixture(t, &parkingProvider{start: func(p brig.Process) brig.Process { return silentProcess{p, killed} }})
		if _, err := h.CreateContext(ctx, "box", brig.ContextSpec{}); err == nil {
			t.Fatal("it has started")
		}
		select {
		case <-killed:
		default:
			t.Error("it was not ended")
		}
		if _, err := h.Pause(ctx, "box", brig.PauseOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// lateProcess is a parked interpreter that sends its "parked" message late.
type lateProcess struct {
	brig.Process
	isSent *atomic.Bool
}

func (p lateProcess) Receive() (brig.From, []byte, error) {
	if p.isSent.CompareAndSwap(false, true) {
		return brig.FromMessage, []byte(`{"type":"parked"}`), nil
	}
	return p.Process.Receive()
}

// A late "parked" message of a pooled interpreter does not end the context that uses the
// interpreter, and does not affect the results of its cells.
func TestLateParkedMessageKeepsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said atomic.Bool
		p := &parkingProvider{park: func(_ context.Context, p brig.Process) (brig.Process, error) { return lateProcess{p, &said}, nil }}
		h := newFixture(t, func(o *engine.Options) {
			o.Pool = newPoolOptions(1).Pool
			p.Provider = o.Provider.(*fake.Provider)
			o.Provider = p
		})
		if err := h.Recover(withRole(t, brig.Operator)); err != nil {
			t.Fatal(err)
		}
		waitForRefill()
		ctx := withRole(t, brig.Member)
		h.createWithNoteFile(t, ctx, brig.Spec{Name: "box", TTL: time.Hour, Pausable: true})
		for _, text := range []string{"first", "second"} {
			res, err := h.RunCode(ctx, "box", brig.Code{Language: brig.Python, Source: "echo " + text}, nil)
			if err != nil || res.Error != nil || res.Lost || string(res.Stdout.Head) != text+"\n" {
				t.Errorf("%s: %+v, %v", text, res, err)
			}
		}
		if !said.Load() {
			t.Error("no pooled interpreter was parked: the test shows nothing")
		}
		if err := h.Remove(ctx, "box"); err != nil {
			t.Error(err)
		}
		h.Close()
	})
}
