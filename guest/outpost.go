package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Outpost is a place with a keeper: the agent's program, brought there, that
// makes machines of processes. Whoever can start that program there with a
// stream to it has all that machines need.
type Outpost struct {
	// Open starts the agent's program with ReachWord where the keeper is, and
	// returns its standard streams. The stream outlives ctx.
	Open func(ctx context.Context) (io.ReadWriteCloser, error)
	// NoKeeper, when set, is told of a stream that leads to none.
	NoKeeper func()
	// Where says for errors what cannot be reached.
	Where string
	// Beat, when set, is how often the stream is used at least.
	Beat time.Duration

	mu      sync.Mutex // guards the fields below
	mux     *wire.Mux
	opening *opening // the stream that will be the next
	closed  bool
}

// errClosed is an outpost that nobody uses any more.
var errClosed = errors.New("the outpost is closed")

// openTime is how long a keeper may take to answer for the first time.
const openTime = 30 * time.Second

// opening is a stream that is being opened, for all who need one meanwhile.
type opening struct {
	done chan struct{}
	err  error // valid once done is closed
}

// Dial makes a connection to the keeper.
func (o *Outpost) Dial(ctx context.Context) (net.Conn, error) {
	err := errors.New("its streams end when they have begun")
	for range dialTries {
		o.mu.Lock()
		m := o.mux
		o.mu.Unlock()
		if m != nil {
			var c net.Conn
			if c, err = m.Open(); err == nil {
				return c, nil
			}
		}
		at := o.instead(ctx, m)
		select {
		case <-at.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if at.err != nil {
			return nil, at.err
		}
	}
	return nil, o.unreachable(err)
}

// dialTries is how many streams are tried for one connection.
const dialTries = 3

// instead has a stream be opened instead of one that is of no use, unless that
// has been done.
func (o *Outpost) instead(ctx context.Context, of *wire.Mux) *opening {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opening != nil {
		return o.opening
	}
	at := &opening{done: make(chan struct{})}
	if o.closed || o.mux != of {
		if o.closed {
			at.err = errClosed
		}
		close(at.done)
		return at
	}
	o.opening = at
	// It is for everybody who waits, and not ended by who came first.
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
		defer cancel()
		m, err := o.open(ctx)
		o.mu.Lock()
		closed := o.closed
		if err == nil && !closed {
			o.mux = m
		}
		o.opening = nil
		o.mu.Unlock()
		switch {
		case err != nil:
			at.err = err
		case closed: // meanwhile
			_ = m.Close() // it always can
			at.err = errClosed
		case o.Beat > 0:
			go o.keepUp(m)
		}
		close(at.done)
	}()
	return at
}

// open opens a stream.
func (o *Outpost) open(ctx context.Context) (*wire.Mux, error) {
	stream, err := o.Open(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	err = greeted(stream)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		stream.Close()
		if o.NoKeeper != nil {
			o.NoKeeper()
		}
		return nil, o.unreachable(err)
	}
	return wire.NewMux(stream, false), nil
}

// keepUp uses a stream as often as it has to be.
func (o *Outpost) keepUp(m *wire.Mux) {
	for tick := time.Tick(o.Beat); ; {
		select {
		case <-m.Done():
			return
		case <-tick:
		}
		if c, err := m.Open(); err == nil {
			c.Close()
		}
	}
}

// greeted reads that the keeper is reached, byte by byte: what follows is the
// mux's.
func greeted(r io.Reader) error {
	var said strings.Builder
	b := make([]byte, 1)
	for !strings.HasSuffix(said.String(), wire.Reached) {
		if _, err := io.ReadFull(r, b); err != nil || said.Len() > 4096 {
			return fmt.Errorf("no keeper there: %w; it said %q", errors.Join(err, io.ErrUnexpectedEOF), said.String())
		}
		said.Write(b)
	}
	return nil
}

func (o *Outpost) unreachable(err error) error {
	if e, ok := errors.AsType[*brig.Error](err); ok {
		return e
	}
	return brig.Errorf(brig.ConnectionFailed, "%s cannot be reached", o.Where).
		WithHint("see that it is up, and the server's log for the cause").Because(err)
}

// Close ends the stream. The keeper and its machines go on.
func (o *Outpost) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.mux != nil {
		_ = o.mux.Close() // it always can
		o.mux = nil
	}
	return nil
}

// order makes a connection with an order on it. The connection ends with ctx.
func (o *Outpost) order(ctx context.Context, w wire.Order) (net.Conn, func(), error) {
	c, err := o.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	end := func() { stop(); c.Close() }
	w.Version = wire.KeeperVersion
	if err := wire.WriteJSON(c, wire.TypeOrder, w); err != nil {
		end()
		return nil, nil, o.unreachable(err)
	}
	return c, end, nil
}

// tell gives an order whose only answer is that it was carried out.
func (o *Outpost) tell(ctx context.Context, w wire.Order) error {
	c, end, err := o.order(ctx, w)
	if err != nil {
		return err
	}
	defer end()
	f, err := wire.NewReader(c).Read()
	if err != nil {
		return o.lost(ctx, err)
	}
	return verdict(f)
}

// lost tells a caller's own end from the keeper's.
func (o *Outpost) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return o.unreachable(err)
}

// verdict is what a keeper's last frame says.
func verdict(f wire.Frame) error {
	if f.Type == wire.TypeOK {
		return nil
	}
	var e wire.Error
	if f.Type != wire.TypeError || json.Unmarshal(f.Payload, &e) != nil {
		return fmt.Errorf("unexpected frame %d from a keeper", f.Type)
	}
	e.Message = clipped(strings.ToValidUTF8(e.Message, "?"))
	switch e.Kind {
	case "not_found":
		return brig.Errorf(brig.NotFound, "%s", e.Message)
	case "exists":
		return brig.Errorf(brig.AlreadyExists, "%s", e.Message)
	default:
		return fmt.Errorf("keeper: %s", e.Message)
	}
}

// States lists the machines that there are.
func (o *Outpost) States(ctx context.Context) ([]wire.State, error) {
	c, end, err := o.order(ctx, wire.Order{Op: wire.KeeperList})
	if err != nil {
		return nil, err
	}
	defer end()
	r := wire.NewReader(c)
	var out []wire.State
	for {
		f, err := r.Read()
		if err != nil {
			return nil, o.lost(ctx, err)
		}
		if f.Type != wire.TypeState || len(out) > maxExecs {
			return out, verdict(f)
		}
		s, err := state(f)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
}

func state(f wire.Frame) (s wire.State, err error) {
	if f.Type != wire.TypeState {
		if err = verdict(f); err == nil {
			err = errors.New("a keeper says nothing of its machine")
		}
		return s, err
	}
	if err := json.Unmarshal(f.Payload, &s); err != nil {
		return s, fmt.Errorf("decode state: %w", err)
	}
	return s, nil
}

// Erase ends a machine and leaves nothing of it. It is no error when there is
// none.
func (o *Outpost) Erase(ctx context.Context, id brig.ID) error {
	err := o.tell(ctx, wire.Order{Op: wire.KeeperErase, ID: string(id)})
	if brig.KindOf(err) == brig.NotFound {
		return nil
	}
	return err
}

// Quit ends the keeper, if it has no machines.
func (o *Outpost) Quit(ctx context.Context) error {
	return o.tell(ctx, wire.Order{Op: wire.KeeperQuit})
}
