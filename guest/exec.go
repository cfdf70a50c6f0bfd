package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// kept is the amount of each stream that the agent retains, in bytes.
const kept = 64 << 10

// exec is an Exec call in progress.
type exec struct {
	g        *Guest
	id       string
	conn     net.Conn
	timedOut atomic.Bool
	treeKill *treeKill
	after    postKillLimit  // the limits that apply once the process tree is gone
	ending   sync.WaitGroup // the callbacks that may kill the process
}

// Exec implements brig.Instance.Exec. If the agent is lost, Exec returns
// the known part of the result and an error that wraps ErrLost.
func (g *Guest) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res := &brig.Result{ExecID: id, Started: time.Now().UTC()}
	defer func() { res.Duration = time.Since(res.Started) }()
	// The call must outlive ctx until the process is killed, so Exec closes the connection itself.
	// A command that outlives its caller is also started independently of the caller's context.
	outlives, dial := context.WithoutCancel(ctx), ctx
	if cmd.Survive {
		dial = outlives
	}
	conn, end, err := g.callFrom(dial, outlives, wire.Call{Op: wire.OpExec, Exec: g.newExec(id, cmd, sio)})
	if err != nil {
		return res, err
	}
	defer end()
	x := &exec{g: g, id: id, treeKill: newTreeKill(ctx)}
	x.conn = timedConn{conn, &x.after}
	defer x.watch(ctx, cmd)()
	// A timeout is reported even if the agent is lost during the kill.
	defer func() { res.TimedOut = res.TimedOut || !res.Done && x.timedOut.Load() }()
	if sio.Stdin != nil {
		go x.sendStdin(sio.Stdin)
	} else {
		// If the agent rejects the call, it has already responded and closed the connection. The
		// reader returns that response, so ignore the failed write.
		_ = wire.Write(conn, wire.TypeStdinEOF, nil)
	}
	err = x.read(ctx, cmd, sio, res)
	if err != nil && !res.Done {
		err = x.treeKill.endWith(err) // the caller decides how to end the process tree
	}
	return res, err
}

// watch kills the process at its timeout or when ctx ends. The returned
// function ends the watch.
func (x *exec) watch(ctx context.Context, cmd brig.Command) func() {
	x.ending.Add(1)
	stopHangup := context.AfterFunc(ctx, func() {
		defer x.ending.Done()
		if cmd.Survive {
			x.conn.Close()
			return
		}
		x.kill()
	})
	clock := func() bool { return false }
	if cmd.Timeout > 0 {
		x.ending.Add(1)
		clock = time.AfterFunc(cmd.Timeout, func() {
			defer x.ending.Done()
			x.timedOut.Store(true)
			x.kill()
		}).Stop
	}
	return func() {
		defer x.treeKill.stop()
		for _, stop := range []func() bool{stopHangup, clock} {
			if stop() {
				x.ending.Done()
			}
		}
		// The first process may end before the rest of its tree, so wait for
		// the kill.
		x.ending.Wait()
	}
}

// sendStdin sends the standard input to the process.
func (x *exec) sendStdin(stdin io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := stdin.Read(buf)
		if n > 0 && wire.Write(x.conn, wire.TypeStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = wire.Write(x.conn, wire.TypeStdinEOF, nil)
			return
		}
	}
}

// read passes the process's output to the caller until the process ends.
func (x *exec) read(ctx context.Context, cmd brig.Command, sio brig.IO, res *brig.Result) error {
	r := wire.NewReader(x.conn)
	var gone error // the caller's error, after which it accepts no more output
	write := func(w io.Writer, p []byte) {
		if w == nil || gone != nil {
			return
		}
		if _, err := w.Write(p); err != nil {
			gone = fmt.Errorf("write output: %w", err)
			if !cmd.Survive {
				x.ending.Go(func() { x.kill() })
			}
		}
	}
	for begun := false; ; {
		f, err := r.Read()
		if err != nil {
			if ctx.Err() != nil && cmd.Survive {
				return context.Cause(ctx)
			}
			if lost := cmp.Or(x.treeKill.goneError(), x.after.goneError()); lost != nil {
				return lost
			}
			return newUnreadableError(err)
		}
		switch f.Type {
		case wire.TypeStarted:
			if begun {
				return newViolation("it started twice")
			}
			begun = true
			if sio.Started != nil {
				sio.Started(x.id)
			}
		case wire.TypeStdout:
			res.Stdout.Total += int64(len(f.Payload))
			write(sio.Stdout, f.Payload)
		case wire.TypeStderr:
			res.Stderr.Total += int64(len(f.Payload))
			write(sio.Stderr, f.Payload)
		case wire.TypeResult:
			if sio.Result == nil {
				return newViolation("a result that was not asked for")
			}
			write(sio.Result, f.Payload)
		case wire.TypeError:
			return decodeAgentError(f.Payload)
		case wire.TypeExit:
			var exit wire.Exit
			if err := json.Unmarshal(f.Payload, &exit); err != nil {
				return newMalformedError("exit", err)
			}
			setResult(res, exit, x.timedOut.Load())
			return errors.Join(gone, context.Cause(ctx))
		default:
			return newViolation("unexpected frame %d", f.Type)
		}
	}
}

// setResult records how a process ended. A process that exited by itself just before it was killed
// did not time out.
func setResult(res *brig.Result, exit wire.Exit, timedOut bool) {
	res.Done = true
	sig := syscall.Signal(exit.Signal & 0x7f)
	switch {
	case (timedOut || exit.TimedOut) && sig == syscall.SIGKILL:
		res.TimedOut = true
		res.ExitCode = 124
	case sig != 0:
		res.Signal = unix.SignalName(sig)
		res.ExitCode = 128 + int(sig)
	default:
		res.ExitCode = exit.Code & 0xff
	}
}
