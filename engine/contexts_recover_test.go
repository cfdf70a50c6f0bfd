package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// killCounter is a provider whose recovered instances count the kills of their processes.
type killCounter struct {
	brig.Provider
	kills atomic.Int64
}

type killCountedInstance struct {
	brig.Instance
	p *killCounter
}

type killCountedProcess struct {
	brig.Process
	p *killCounter
}

func (p *killCounter) Recover(ctx context.Context, id brig.ID, h brig.Handle) (brig.Instance, error) {
	in, err := p.Provider.Recover(ctx, id, h)
	return &killCountedInstance{in, p}, err
}

func (i *killCountedInstance) KeptProcesses(ctx context.Context) ([]brig.KeptProcess, error) {
	kept, err := i.Instance.KeptProcesses(ctx)
	for n := range kept {
		kept[n].Process = &killCountedProcess{kept[n].Process, i.p}
	}
	return kept, err
}

func (i *killCountedInstance) Keep(ctx context.Context, p brig.Process, note []byte) error {
	if c, ok := p.(*killCountedProcess); ok {
		p = c.Process
	}
	return i.Instance.Keep(ctx, p, note)
}

func (p *killCountedProcess) Kill(ctx context.Context) error {
	p.p.kills.Add(1)
	return p.Process.Kill(ctx)
}

// A new server kills a recovered interpreter that does not respond exactly once. Its context starts
// another one. The control is an interpreter that responds, and is not killed.
func TestUnresponsiveInterpreterIsKilledOnce(t *testing.T) {
	for code, want := range map[string]int64{"deaf 5000": 1, "sleep 5000": 0} {
		withContext(t, func(t *testing.T, h *fixture, p *hookedProvider, run func(brig.Code) *brig.CodeResult) {
			ctx := withRole(t, brig.Member)
			run(brig.Code{Source: "set x kept"})
			callerCtx, disconnect := context.WithCancel(ctx)
			defer disconnect()
			go func() { _, _ = h.RunCode(callerCtx, "box", brig.Code{Source: code, Timeout: time.Hour}, nil) }()
			advance(time.Second)

			defer p.disconnect()()
			counter := &killCounter{Provider: p.Provider}
			next := engine.New(t.Context(), engine.Options{Store: h.store, Provider: counter, Images: images{}, LimitRange: brig.DefaultLimitRange()})
			defer next.Close()
			if err := next.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			advance(time.Minute)
			if n := counter.kills.Load(); n != want {
				t.Errorf("%s: killed %d times, want %d", code, n, want)
			}
			res, err := next.RunCode(ctx, "box", brig.Code{Source: "get x"}, nil)
			if err != nil || (mainValue(res) == "kept") != (want == 0) {
				t.Errorf("%s: x is %+v, %v", code, res, err)
			}
		})
	}
}
