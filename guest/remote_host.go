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

// RemoteHost is a remote host with a supervisor, which creates instances from
// plain processes. The supervisor is the agent's program, copied to the remote
// host. Its only requirement is a stream to that program, started on the remote
// host.
type RemoteHost struct {
	// Open starts the agent's program with wire.ConnectWord on the supervisor's
	// host, and returns its standard streams. The stream outlives ctx.
	Open func(ctx context.Context) (io.ReadWriteCloser, error)
	// NoSupervisor, if set, is called when a stream does not reach a
	// supervisor.
	NoSupervisor func()
	// Label names the remote host in errors.
	Label string
	// Heartbeat, if set, is the maximum time that the stream may be idle.
	Heartbeat time.Duration

	mu      sync.Mutex // guards the fields below
	mux     *wire.Mux
	opening *pendingStream // the next stream, while it is being opened
	closed  bool
}

// errClosed is the error of a remote host after Close.
var errClosed = errors.New("the outpost is closed")

// openTimeout is the maximum time for a supervisor's first response.
const openTimeout = 30 * time.Second

// pendingStream is a stream that is being opened. All callers share it.
type pendingStream struct {
	done chan struct{}
	err  error // valid once done is closed
}

// Dial opens a connection to the supervisor.
func (o *RemoteHost) Dial(ctx context.Context) (net.Conn, error) {
	err := errors.New("its streams end when they have begun")
	for range maxDialAttempts {
		o.mu.Lock()
		m := o.mux
		o.mu.Unlock()
		if m != nil {
			var c net.Conn
			if c, err = m.Open(); err == nil {
				return c, nil
			}
		}
		at := o.replaceStream(ctx, m)
		select {
		case <-at.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if at.err != nil {
			return nil, at.err
		}
	}
	return nil, o.unreachableError(err)
}

// maxDialAttempts is the number of streams that Dial tries for one connection.
const maxDialAttempts = 3

// replaceStream opens a stream to replace an unusable one, unless another
// caller has already replaced it.
func (o *RemoteHost) replaceStream(ctx context.Context, of *wire.Mux) *pendingStream {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opening != nil {
		return o.opening
	}
	pending := &pendingStream{done: make(chan struct{})}
	if o.closed || o.mux != of {
		if o.closed {
			pending.err = errClosed
		}
		close(pending.done)
		return pending
	}
	o.opening = pending
	// Several callers may wait for the stream, so it does not end with the
	// first caller's context.
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
		defer cancel()
		m, err := o.openMux(ctx)
		o.mu.Lock()
		closed := o.closed
		if err == nil && !closed {
			o.mux = m
		}
		o.opening = nil
		o.mu.Unlock()
		switch {
		case err != nil:
			pending.err = err
		case closed: // o was closed while the stream was opened
			_ = m.Close() // never fails
			pending.err = errClosed
		case o.Heartbeat > 0:
			go o.sendHeartbeats(m)
		}
		close(pending.done)
	}()
	return pending
}

// openMux opens a stream.
func (o *RemoteHost) openMux(ctx context.Context) (*wire.Mux, error) {
	stream, err := o.Open(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	err = readGreeting(stream)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		stream.Close()
		if o.NoSupervisor != nil {
			o.NoSupervisor()
		}
		return nil, o.unreachableError(err)
	}
	return wire.NewMux(stream, false), nil
}

// sendHeartbeats pings a stream so that it is not idle for longer than
// Heartbeat.
func (o *RemoteHost) sendHeartbeats(m *wire.Mux) {
	for tick := time.Tick(o.Heartbeat); ; {
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

// readGreeting reads the supervisor's greeting byte by byte, because the data after
// it belongs to the mux.
func readGreeting(r io.Reader) error {
	var greeting strings.Builder
	b := make([]byte, 1)
	for !strings.HasSuffix(greeting.String(), wire.Reached) {
		if _, err := io.ReadFull(r, b); err != nil || greeting.Len() > 4096 {
			return fmt.Errorf("no supervisor there: %w; it said %q", errors.Join(err, io.ErrUnexpectedEOF), greeting.String())
		}
		greeting.Write(b)
	}
	return nil
}

func (o *RemoteHost) unreachableError(err error) error {
	if e, ok := errors.AsType[*brig.Error](err); ok {
		return e
	}
	return brig.Errorf(brig.ConnectionFailed, "%s cannot be reached", o.Label).
		WithHint("see that it is up, and the server's log for the cause").Because(err)
}

// Close closes the stream. The supervisor and its instances continue to run.
func (o *RemoteHost) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.mux != nil {
		_ = o.mux.Close() // never fails
		o.mux = nil
	}
	return nil
}

// openRequest opens a connection and sends a request on it. The connection closes when ctx ends.
func (o *RemoteHost) openRequest(ctx context.Context, w wire.SupervisorRequest) (net.Conn, func(), error) {
	return o.openRequestFrom(ctx, ctx, w)
}

// openRequestFrom is like openRequest, for a connection that outlives its dial context.
func (o *RemoteHost) openRequestFrom(dial, ctx context.Context, w wire.SupervisorRequest) (net.Conn, func(), error) {
	c, err := o.Dial(dial)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	end := func() { stop(); c.Close() }
	w.Version = wire.SupervisorVersion
	if err := wire.WriteJSON(c, wire.TypeOrder, w); err != nil {
		end()
		return nil, nil, o.unreachableError(err)
	}
	return c, end, nil
}

// sendRequest sends a request whose response is only success or an error.
func (o *RemoteHost) sendRequest(ctx context.Context, w wire.SupervisorRequest) error {
	c, end, err := o.openRequest(ctx, w)
	if err != nil {
		return err
	}
	defer end()
	f, err := wire.NewReader(c).Read()
	if err != nil {
		return o.causeOrError(ctx, err)
	}
	return decodeFrameError(f)
}

// causeOrError returns the cause of ctx if ctx has ended, and otherwise the
// supervisor's failure.
func (o *RemoteHost) causeOrError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return o.unreachableError(err)
}

// decodeFrameError returns the result in the last frame from a supervisor.
func decodeFrameError(f wire.Frame) error {
	if f.Type == wire.TypeOK {
		return nil
	}
	var e wire.Error
	if f.Type != wire.TypeError || json.Unmarshal(f.Payload, &e) != nil {
		return fmt.Errorf("unexpected frame %d from a supervisor", f.Type)
	}
	e.Message = clipGuestText(strings.ToValidUTF8(e.Message, "?"))
	switch e.Kind {
	case "not_found":
		return brig.Errorf(brig.NotFound, "%s", e.Message)
	case "exists":
		return brig.Errorf(brig.AlreadyExists, "%s", e.Message)
	default:
		return fmt.Errorf("supervisor: %s", e.Message)
	}
}

// States returns the states of the existing instances.
func (o *RemoteHost) States(ctx context.Context) ([]wire.State, error) {
	c, end, err := o.openRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorList})
	if err != nil {
		return nil, err
	}
	defer end()
	r := wire.NewReader(c)
	var out []wire.State
	for size := 0; ; {
		f, err := r.Read()
		if err != nil {
			return nil, o.causeOrError(ctx, err)
		}
		if size += len(f.Payload); size > maxStates {
			return nil, o.causeOrError(ctx, fmt.Errorf("a list of more than %d bytes: %w", maxStates, ErrLost))
		}
		if f.Type != wire.TypeState || len(out) > maxExecs {
			return out, decodeFrameError(f)
		}
		s, err := decodeState(f)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
}

func decodeState(f wire.Frame) (s wire.State, err error) {
	if f.Type != wire.TypeState {
		if err = decodeFrameError(f); err == nil {
			err = errors.New("the supervisor has not described its machine")
		}
		return s, err
	}
	if err := json.Unmarshal(f.Payload, &s); err != nil {
		return s, fmt.Errorf("decode state: %w", err)
	}
	return s, nil
}

// Destroy ends an instance and removes all of its data. It returns nil if the
// instance does not exist.
func (o *RemoteHost) Destroy(ctx context.Context, id brig.ID) error {
	err := o.sendRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorDestroy, ID: string(id)})
	if brig.KindOf(err) == brig.NotFound {
		return nil
	}
	return err
}

// Quit ends the supervisor if it has no instances.
func (o *RemoteHost) Quit(ctx context.Context) error {
	return o.sendRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorQuit})
}
