package guest

import (
	"context"
	"net"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Port implements the Dial of brig.Instance.
func (g *Guest) Port(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, brig.InvalidField("port", "%d is not a port", port).WithHint("give a number from 1 to 65535")
	}
	return g.stream(ctx, wire.Call{Op: wire.OpDial, Port: port})
}

// stream makes a call after whose answer the connection is the caller's. It
// outlives ctx, which only bounds the time until there is an answer.
func (g *Guest) stream(ctx context.Context, c wire.Call) (net.Conn, error) {
	conn, _, err := g.call(context.WithoutCancel(ctx), c)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = finish(ctx, wire.NewReader(conn))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
