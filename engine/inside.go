package engine

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/brig-run/brig"
)

// inside lets a call in, wakes the machine of the sandbox that it names, and
// does f in it. The lease is renewed. What f returns may go on being used after
// the call: f then takes over v.rest, which lets the machine sleep again.
func (e *Engine) inside(ctx context.Context, op brig.Op, name string, f func(v *visit, in brig.Instance) error, say ...func(*visit)) (err error) {
	v, err := e.enter(ctx, op, name, say...)
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	in, rest, err := e.occupy(ctx, v.rec, 0)
	if err != nil {
		return err
	}
	v.rest = rest
	defer func() { v.rest() }()
	if err := f(v, in); err != nil {
		return e.lost(ctx, v.rec, in, err)
	}
	return nil
}

// takeRest takes over what lets the machine sleep again; it is called once,
// however often the returned function is.
func (v *visit) takeRest() func() {
	rest := v.rest
	v.rest = func() {}
	return sync.OnceFunc(rest)
}

// heldConn and heldReader keep a machine awake until they are closed.
type heldConn struct {
	net.Conn
	rest func()
}

// Close implements net.Conn.
func (c heldConn) Close() error {
	defer c.rest()
	return c.Conn.Close()
}

// CloseWrite ends what is sent, where the connection can.
func (c heldConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type heldReader struct {
	io.ReadCloser
	rest func()
}

// Close implements io.Closer.
func (r heldReader) Close() error {
	defer r.rest()
	return r.ReadCloser.Close()
}
