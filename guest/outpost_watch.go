package guest

import (
	"context"
	"errors"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// watch asks to be told of the machine's end.
func (m *OutpostMachine) watch(ctx context.Context) (*wire.Reader, func(), wire.State, error) {
	c, end, err := m.o.order(context.WithoutCancel(ctx), wire.Order{Op: wire.KeeperWatch, ID: string(m.id)})
	if err != nil {
		return nil, nil, wire.State{}, err
	}
	stop := context.AfterFunc(ctx, end)
	r := wire.NewReader(c)
	s, err := firstState(r)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		if _, told := errors.AsType[*brig.Error](err); !told {
			err = m.o.lost(ctx, err)
		}
		return nil, nil, s, err
	}
	return r, end, s, nil
}

// attach waits for the machine's end on a connection that watches it.
func (m *OutpostMachine) attach(r *wire.Reader, end func(), s wire.State) {
	if s.Ended != nil {
		end()
		m.conclude(*s.Ended)
		return
	}
	go func() {
		defer func() { end() }()
		for {
			if s, err := firstState(r); err == nil && s.Ended != nil {
				m.conclude(*s.Ended)
				return
			}
			end()
			m.mu.Lock()
			tied := m.tied
			m.mu.Unlock()
			if tied {
				// It has ended with the connection, or is about to.
				m.conclude(wire.Ending{Code: 137, Reason: string(brig.HungUp), AtMS: time.Now().UnixMilli()})
				return
			}
			if r, end = m.again(); r == nil {
				return
			}
		}
	}()
}

// How long it takes until a machine that cannot be reached is looked for again.
const (
	lookSoon = 50 * time.Millisecond
	lookLate = 10 * time.Second
)

// again finds the machine after its connection was lost. It has ended when the
// keeper knows it no more, or its lease is over and it still cannot be reached:
// then the keeper has ended it, or what it was on is gone.
func (m *OutpostMachine) again() (*wire.Reader, func()) {
	for pause := lookSoon; ; pause = min(2*pause, lookLate) {
		ctx, cancel := context.WithTimeout(m.life, openTime)
		r, end, s, err := m.watch(ctx)
		gone := err != nil && (brig.KindOf(err) == brig.NotFound || m.gone != nil && m.gone(ctx))
		cancel()
		m.mu.Lock()
		late := time.Now().After(m.lease.Add(openTime))
		m.mu.Unlock()
		switch {
		case err == nil && s.Ended != nil:
			end()
			m.conclude(*s.Ended)
			return nil, func() {}
		case err == nil:
			return r, end
		case errors.Is(err, errClosed):
			return nil, func() {} // whoever comes next looks for it
		case gone:
			m.conclude(wire.Ending{Code: 137, Reason: string(brig.Crashed), AtMS: time.Now().UnixMilli()})
			return nil, func() {}
		case late:
			m.conclude(wire.Ending{Code: 137, Reason: string(brig.LeaseExpired), AtMS: time.Now().UnixMilli()})
			return nil, func() {}
		}
		select {
		case <-m.done:
			return nil, func() {}
		case <-time.After(pause):
		}
	}
}

// Ended says that the machine is gone, and why, to who knows better than its
// keeper.
func (m *OutpostMachine) Ended(why brig.ExitReason) {
	m.conclude(wire.Ending{Code: 137, Reason: string(why), AtMS: time.Now().UnixMilli()})
}

// conclude says how the machine ended, once.
func (m *OutpostMachine) conclude(e wire.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exit != nil {
		return
	}
	why := brig.ExitReason(e.Reason)
	switch why {
	case brig.Exited, brig.Stopped, brig.Killed, brig.LeaseExpired, brig.HungUp:
	default:
		why = brig.Crashed
	}
	m.exit = &brig.Exit{Code: e.Code & 0xff, Reason: why, At: time.UnixMilli(e.AtMS).UTC()}
	close(m.done)
}
