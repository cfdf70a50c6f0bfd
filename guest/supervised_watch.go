package guest

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// watch subscribes to the report of the instance's end.
func (m *SupervisedInstance) watch(ctx context.Context) (*wire.Reader, func(), wire.State, error) {
	c, end, err := m.o.openRequestFrom(ctx, context.WithoutCancel(ctx), wire.SupervisorRequest{Op: wire.SupervisorWatch, ID: string(m.id)})
	if err != nil {
		return nil, nil, wire.State{}, err
	}
	stop := context.AfterFunc(ctx, end)
	r := wire.NewReader(c)
	s, err := readFirstState(r)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		if _, isReported := errors.AsType[*brig.Error](err); !isReported {
			err = m.o.causeOrError(ctx, err)
		}
		return nil, nil, s, err
	}
	return r, end, s, nil
}

// attach waits for the instance's end on a connection that was opened by watch.
func (m *SupervisedInstance) attach(r *wire.Reader, end func(), s wire.State) {
	if s.Ended != nil {
		end()
		m.recordEnd(*s.Ended)
		return
	}
	go func() {
		defer func() { end() }()
		for {
			if s, err := readFirstState(r); err == nil && s.Ended != nil {
				m.recordEnd(*s.Ended)
				return
			}
			end()
			m.mu.Lock()
			tethered := m.tethered
			m.mu.Unlock()
			if tethered {
				// The instance ends with the connection.
				m.recordEnd(wire.Ending{Code: 137, Reason: string(brig.HungUp), AtMS: time.Now().UnixMilli()})
				return
			}
			if r, end = m.watchAgain(); r == nil {
				return
			}
		}
	}()
}

// Minimum and maximum pauses between attempts to reach the supervisor.
const (
	firstReconnect = 50 * time.Millisecond
	maxReconnect   = 10 * time.Second
)

// watchAgain watches the instance again after its connection was lost. The instance has ended if
// the supervisor no longer has it, or if its lease has expired and the supervisor is still
// unreachable. In the second case, either the supervisor has ended the instance or the remote host
// is down.
func (m *SupervisedInstance) watchAgain() (*wire.Reader, func()) {
	for pause := firstReconnect; ; pause = min(2*pause, maxReconnect) {
		ctx, cancel := context.WithTimeout(m.life, openTimeout)
		r, end, s, err := m.watch(ctx)
		isGone := err != nil && (brig.KindOf(err) == brig.NotFound || m.isGone != nil && m.isGone(ctx))
		cancel()
		m.mu.Lock()
		late := time.Now().After(m.lease.Add(openTimeout))
		m.mu.Unlock()
		switch {
		case err == nil && s.Ended != nil:
			end()
			m.recordEnd(*s.Ended)
			return nil, func() {}
		case err == nil:
			return r, end
		case errors.Is(err, errClosed):
			return nil, func() {} // the next server finds the instance again
		case isGone:
			m.recordEnd(wire.Ending{Code: 137, Reason: string(brig.Crashed), AtMS: time.Now().UnixMilli()})
			return nil, func() {}
		case late:
			m.recordEnd(wire.Ending{Code: 137, Reason: string(brig.LeaseExpired), AtMS: time.Now().UnixMilli()})
			return nil, func() {}
		}
		select {
		case <-m.done:
			return nil, func() {}
		case <-time.After(pause):
		}
	}
}

// MarkEnded records that the instance has ended, and why. It is for callers that detect the end
// without the supervisor.
func (m *SupervisedInstance) MarkEnded(reason brig.ExitReason) {
	m.recordEnd(wire.Ending{Code: 137, Reason: string(reason), AtMS: time.Now().UnixMilli()})
}

// recordEnd records how the instance ended. Later calls have no effect.
func (m *SupervisedInstance) recordEnd(e wire.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exit != nil {
		return
	}
	reason := brig.ExitReason(e.Reason)
	switch reason {
	case brig.Exited, brig.Stopped, brig.Killed, brig.LeaseExpired, brig.HungUp, brig.OverTime, brig.AgentLost:
	default:
		reason = brig.Crashed
	}
	m.exit = &brig.Exit{Code: e.Code & 0xff, Reason: reason, At: time.UnixMilli(e.AtMS).UTC()}
	close(m.done)
}
