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

const (
	// killGrace is the default of Guest.Grace. A healthy agent answers within
	// milliseconds. On an overloaded machine it may need seconds, and that is no
	// reason to end a sandbox and lose its state.
	killGrace = 5 * time.Second
	// backstop is how far the agent's own clock runs behind the host's.
	backstop = 2 * time.Second
	// kept is how much of each stream the agent itself remembers, in bytes.
	kept = 64 << 10
)

// exec is one call of Exec under way.
type exec struct {
	g        *Guest
	id       string
	conn     net.Conn
	timedOut atomic.Bool
	ending   sync.WaitGroup // what ends the process, or may yet
}

// Exec implements the Exec of brig.Instance. It returns ErrLost, wrapped, and
// what is known of the result, when the agent is gone.
func (g *Guest) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res := &brig.Result{ExecID: id, Started: time.Now().UTC()}
	defer func() { res.Duration = time.Since(res.Started) }()
	// The call outlives ctx by what it takes to kill the process: its
	// connection is not closed by ctx but by us.
	conn, end, err := g.call(context.WithoutCancel(ctx), wire.Call{Op: wire.OpExec, Exec: g.request(id, cmd, sio)})
	if err != nil {
		return res, err
	}
	defer end()
	x := &exec{g: g, id: id, conn: conn}
	defer x.watch(ctx, cmd)()
	// An agent that is lost over the kill does not undo that time ran out.
	defer func() { res.TimedOut = res.TimedOut || !res.Done && x.timedOut.Load() }()
	if sio.Stdin != nil {
		go x.feed(sio.Stdin)
	} else {
		// An agent that refuses has answered and closed already: its answer
		// counts, not that this could not be written.
		_ = wire.Write(conn, wire.TypeStdinEOF, nil)
	}
	return res, x.read(ctx, cmd, sio, res)
}

// watch ends the process when its time is over or its caller is gone. The
// function that it returns ends the watch.
func (x *exec) watch(ctx context.Context, cmd brig.Command) func() {
	x.ending.Add(1)
	stopHangup := context.AfterFunc(ctx, func() {
		defer x.ending.Done()
		if cmd.Survive {
			x.conn.Close()
			return
		}
		x.kill(ctx)
	})
	clock := func() bool { return false }
	if cmd.Timeout > 0 {
		x.ending.Add(1)
		clock = time.AfterFunc(cmd.Timeout, func() {
			defer x.ending.Done()
			x.timedOut.Store(true)
			x.kill(ctx)
		}).Stop
	}
	return func() {
		for _, stop := range []func() bool{stopHangup, clock} {
			if stop() {
				x.ending.Done()
			}
		}
		// The first process ends before the last of its tree. A kill that is
		// stuck on its way to the agent has had its time.
		ended := make(chan struct{})
		go func() { x.ending.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(cmp.Or(x.g.Grace, killGrace)):
		}
	}
}

// kill tells the agent to kill the process tree, and gives it a moment.
func (x *exec) kill(ctx context.Context) {
	grace := cmp.Or(x.g.Grace, killGrace)
	x.conn.SetReadDeadline(time.Now().Add(grace))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	// Whether it worked is seen on the exec's own connection.
	_ = x.g.simple(ctx, wire.Call{Op: wire.OpKill, Kill: &wire.Kill{ID: x.id}})
}

// feed sends the process its input.
func (x *exec) feed(stdin io.Reader) {
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

// read carries the process's output to its caller until it ends.
func (x *exec) read(ctx context.Context, cmd brig.Command, sio brig.IO, res *brig.Result) error {
	r := wire.NewReader(x.conn)
	var gone error // of the caller, who does not want more output
	write := func(w io.Writer, p []byte) {
		if w == nil || gone != nil {
			return
		}
		if _, err := w.Write(p); err != nil {
			gone = fmt.Errorf("write output: %w", err)
			if !cmd.Survive {
				x.ending.Go(func() { x.kill(ctx) })
			}
		}
	}
	for {
		f, err := r.Read()
		if err != nil {
			if ctx.Err() != nil && cmd.Survive {
				return context.Cause(ctx)
			}
			return fmt.Errorf("read agent: %w (%w)", ErrLost, err)
		}
		switch f.Type {
		case wire.TypeStarted:
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
			write(sio.Result, f.Payload)
		case wire.TypeError:
			return agentError(f.Payload)
		case wire.TypeExit:
			var exit wire.Exit
			if err := json.Unmarshal(f.Payload, &exit); err != nil {
				return fmt.Errorf("decode exit: %w (%w)", ErrLost, err)
			}
			conclude(res, exit, x.timedOut.Load())
			return errors.Join(gone, context.Cause(ctx))
		default:
			return fmt.Errorf("unexpected frame %d: %w", f.Type, ErrLost)
		}
	}
}

// conclude writes down how a process ended. A process that ended by itself in
// the moment in which its time ran out was in time.
func conclude(res *brig.Result, exit wire.Exit, timedOut bool) {
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
