package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// CarriedProcess is a program whose descriptors the agent holds. It is for sandboxes that are
// saved or cannot receive descriptors. A separate call transfers its output and messages, in
// the order of the program's writes. It implements brig.Process.
type CarriedProcess struct {
	program
	output   net.Conn // its output, and messages in both directions
	frames   *wire.Reader
	messages messageBuffer
	outEOF   [2]bool
	input    *input

	sendMu sync.Mutex // one message at a time
}

var _ brig.Process = (*CarriedProcess)(nil)

// StartCarried implements brig.Instance.Start for sandboxes that cannot
// receive descriptors.
func (g *Guest) StartCarried(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	req := g.newExec(id, cmd, brig.IO{})
	req.Carried, req.TimeoutMS, req.Plain = true, 0, !s.Channel
	if s.Terminal != nil {
		req.Terminal = &wire.Terminal{Columns: s.Terminal.Columns, Rows: s.Terminal.Rows}
	}
	p, err := g.startCarried(ctx, id, wire.Call{Op: wire.OpExec, Exec: req})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ReattachCarried takes over a carried process that was kept. It returns
// NotFound if the process does not exist.
func (g *Guest) ReattachCarried(ctx context.Context, id string) (*CarriedProcess, error) {
	p, err := g.startCarried(ctx, id, wire.Call{Op: wire.OpReattach, ID: id})
	if brig.KindOf(err) == brig.InvalidArgument {
		return nil, brig.Errorf(brig.NotFound, "the process has ended").Because(err)
	}
	return p, err
}

// DetachCarried sets whether a carried process keeps running while no client is attached to it.
func (g *Guest) DetachCarried(ctx context.Context, id string, on bool) error {
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpDetach, Keep: &wire.Keep{ID: id, On: on}})
}

// startCarried makes the calls of a carried process. The calls outlive ctx,
// which limits only the start.
func (g *Guest) startCarried(ctx context.Context, id string, c wire.Call) (_ *CarriedProcess, err error) {
	var openConns []net.Conn
	defer func() {
		if err != nil {
			for _, c := range openConns {
				c.Close()
			}
		}
	}()
	conn, _, err := g.callFrom(ctx, context.WithoutCancel(ctx), c)
	if err != nil {
		return nil, err
	}
	openConns = append(openConns, conn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	pid, err := awaitStart(ctx, conn)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	output, err := g.openStream(ctx, wire.Call{Op: wire.OpOutput, ID: id})
	if err != nil {
		return nil, err
	}
	openConns = append(openConns, output)
	in, err := g.openStream(ctx, wire.Call{Op: wire.OpInput, ID: id})
	if err != nil {
		return nil, err
	}
	openConns = append(openConns, in)
	p := &CarriedProcess{program: newProgram(g, id, pid, conn), output: output, frames: wire.NewReader(output), input: &input{conn: in}}
	go p.await()
	return p, nil
}

// Receive implements brig.Process.
func (p *CarriedProcess) Receive() (brig.From, []byte, error) { return p.receive(false) }

// ReceiveRest is like Receive, for the output that follows the last message. It returns io.EOF when
// all processes have closed the output, or at the deadline. Afterwards, no more data can be
// received.
func (p *CarriedProcess) ReceiveRest(deadline time.Time) (brig.From, []byte, error) {
	if err := p.output.SetReadDeadline(deadline); err != nil {
		return 0, nil, err
	}
	for {
		from, b, err := p.receive(true)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, nil, io.EOF
		}
		if err != nil || from != brig.FromMessage {
			return from, b, err
		}
	}
}

// receive returns the next part of the output or the next message. If rest is true, it returns
// io.EOF once both outputs have ended.
func (p *CarriedProcess) receive(rest bool) (brig.From, []byte, error) {
	for !rest || !p.outEOF[0] || !p.outEOF[1] {
		f, err := p.frames.Read()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return 0, nil, err
			}
			return 0, nil, newUnreadableError(err)
		}
		ended := len(f.Payload) == 0
		switch f.Type {
		case wire.TypeStdout:
			if p.outEOF[0] = p.outEOF[0] || ended; !ended {
				return brig.FromStdout, f.Payload, nil
			}
		case wire.TypeStderr:
			if p.outEOF[1] = p.outEOF[1] || ended; !ended {
				return brig.FromStderr, f.Payload, nil
			}
		case wire.TypeResult:
			if ended {
				continue
			}
			message, whole, err := p.appendMessage(f.Payload)
			if err != nil {
				return 0, nil, err
			}
			// The agent orders output and messages itself and does not need positions.
			if _, position := parsePosition(message); whole && !position {
				return brig.FromMessage, message, nil
			}
		default:
			return 0, nil, newViolation("unexpected frame %d", f.Type)
		}
	}
	return 0, nil, io.EOF
}

// appendMessage appends a part of a message. The last part ends with a line feed.
func (p *CarriedProcess) appendMessage(part []byte) (message []byte, whole bool, err error) {
	if err := p.messages.add(part); err != nil {
		return nil, false, err
	}
	message, whole = p.messages.line()
	return message, whole, nil
}

// LimitMessages sets the budget for messages that have not been received yet.
func (p *CarriedProcess) LimitMessages(b brig.MessageBudget) { p.messages.limit(b) }

// Send implements brig.Process.
func (p *CarriedProcess) Send(message []byte) error {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	select {
	case <-p.exited: // the connection may still accept data after the exit
		return fmt.Errorf("send to a process: %w", io.ErrClosedPipe)
	default:
	}
	if _, err := p.output.Write(append(message, '\n')); err != nil {
		return fmt.Errorf("send to a process: %w", err)
	}
	return nil
}

// Stdin implements brig.Process.
func (p *CarriedProcess) Stdin() io.WriteCloser { return p.input }

// Close implements brig.Process.
func (p *CarriedProcess) Close() error {
	p.messages.close()
	return errors.Join(p.input.conn.Close(), p.output.Close(), p.conn.Close())
}

// input is the standard input of a carried process.
type input struct {
	conn net.Conn

	mu     sync.Mutex // guards the field below, and serializes frames
	closed bool
}

// Write implements io.Writer.
func (in *input) Write(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return 0, net.ErrClosed
	}
	for sent := 0; ; {
		n := min(len(p)-sent, chunkSize)
		if n == 0 {
			return sent, nil
		}
		if err := wire.Write(in.conn, wire.TypeStdin, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
}

// Close implements io.Closer. It closes the process's standard input, so that the input is also
// closed for a server that reattaches later.
func (in *input) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil
	}
	in.closed = true
	return wire.Write(in.conn, wire.TypeStdinEOF, nil)
}

// SetWriteDeadline sets the deadline of Write calls.
func (in *input) SetWriteDeadline(at time.Time) error { return in.conn.SetWriteDeadline(at) }

// SetLease sets the remaining lease of the agent's sandbox. If untethered is set, the sandbox no
// longer ends with the client that created it.
func (g *Guest) SetLease(ctx context.Context, left time.Duration, untethered bool) error {
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpLease, Lease: &wire.Lease{MS: max(left.Milliseconds(), 0), Own: untethered}})
}

// RunMain makes the agent run the main program, which writes to the agent's own
// output. The sandbox ends with the program unless lingers is set.
func (g *Guest) RunMain(ctx context.Context, cmd brig.Command, lingers bool) error {
	req := g.newExec("main", cmd, brig.IO{})
	req.Keep, req.Lingers = 0, lingers
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpMain, Exec: req})
}

// WaitMain waits until the main program of a lingering sandbox has ended, and
// returns its exit code.
func (g *Guest) WaitMain(ctx context.Context) (code int, err error) {
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpWaitMain})
	if err != nil {
		return 0, err
	}
	defer end()
	f, err := wire.NewReader(conn).Read()
	if err != nil {
		return 0, causeOrError(ctx, err)
	}
	if f.Type != wire.TypeExit {
		return 0, cmp.Or(endOf(f), newViolation("no exit"))
	}
	var e wire.Exit
	if err := json.Unmarshal(f.Payload, &e); err != nil {
		return 0, newMalformedError("exit", err)
	}
	return e.Code & 0xff, nil
}
