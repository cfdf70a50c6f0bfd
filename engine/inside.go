package engine

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// withInstance runs f as one call on the instance of a sandbox, after resuming the sandbox and
// renewing its lease. If the result of f is used after the call, f takes over v.release, which
// permits the sandbox to be paused again.
func (l *lifecycle) withInstance(ctx context.Context, op brig.Op, name string, f func(v *call, in brig.Instance) error) error {
	return l.withInstanceDetails(ctx, op, name, nil, f)
}

// withInstanceDetails is like withInstance. note adds details of the call
// before the intent is recorded.
func (l *lifecycle) withInstanceDetails(ctx context.Context, op brig.Op, name string, note func(*call), f func(v *call, in brig.Instance) error) error {
	return l.doWithDetails(ctx, op, name, note, func(v *call) error {
		in, releaseUse, err := l.useInstanceFor(ctx, v.rec, 0)
		if err != nil {
			return err
		}
		v.release = releaseUse
		defer func() { v.release() }()
		if err := f(v, in); err != nil {
			return l.explainLoss(ctx, v.rec, in, err)
		}
		return nil
	})
}

// takeRelease takes over v.release, which permits the sandbox to be paused
// again. The returned function calls it only once.
func (v *call) takeRelease() func() {
	releaseUse := v.release
	v.release = func() {}
	return sync.OnceFunc(releaseUse)
}

// activeConn and activeReader keep a sandbox awake until they are closed.
type activeConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c activeConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite closes the write side, if the connection supports it.
func (c activeConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type activeReader struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (r activeReader) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}

// useInstance returns the instance of a running sandbox, keeps it awake, and renews its lease over
// time, until releaseUse is called. It first resumes a paused sandbox, and updates rec.
func (l *lifecycle) useInstance(ctx context.Context, rec *brig.Record) (in brig.Instance, releaseUse func(), err error) {
	for {
		leave, err := l.usesOf(rec.ID).enter(ctx)
		if err != nil {
			return nil, nil, err
		}
		in, err := l.runningInstance(rec)
		if err == nil {
			releaseUse, err := l.keepAwake(ctx, rec, in)
			if err != nil {
				leave()
				return nil, nil, err
			}
			l.holdSession(ctx, rec)
			release := l.hold(rec)
			return in, func() { releaseUse(); leave(); release() }, nil
		}
		leave()
		retryable, resumeErr := l.resumePaused(ctx, rec)
		if resumeErr != nil {
			return nil, nil, resumeErr
		}
		if !retryable {
			l.dropUses(rec.ID)
			return nil, nil, err
		}
	}
}

// useInstanceFor is like useInstance, for an operation that may take as long as timeout. It also
// renews the lease immediately, because the operation may outlive this server, or may be too short
// for a renewal by useInstance.
func (l *lifecycle) useInstanceFor(ctx context.Context, rec *brig.Record, timeout time.Duration) (in brig.Instance, releaseUse func(), err error) {
	if in, releaseUse, err = l.useInstance(ctx, rec); err != nil {
		return nil, nil, err
	}
	if err = l.renew(ctx, rec, in, timeout); err != nil {
		releaseUse()
		return nil, nil, err
	}
	return in, releaseUse, nil
}

// renew extends the lease of a sandbox in use to its TTL from now, or to the
// timeout of a command if that is longer. It skips extensions that are too
// short to justify a write.
func (l *lifecycle) renew(ctx context.Context, rec *brig.Record, in brig.Instance, timeout time.Duration) error {
	if rec.Spec.Ephemeral || rec.Spec.FixedLease {
		return nil
	}
	if hasEnded(in) {
		return nil
	}
	want := l.Now().Add(max(rec.Spec.TTL, timeout+execLeaseMargin))
	if want.Sub(rec.Expires) < rec.Spec.TTL/20 {
		return nil
	}
	now, err := l.setLease(ctx, rec, in, want)
	if err == nil {
		rec.Expires = now.Expires
	}
	return err
}
