// Package guest is the host's side of the agent inside a sandbox. A provider
// that can dial an agent embeds Guest and gets processes, files and artifacts
// for nothing. It treats the agent as compromised: lengths are bounded, and
// clocks and verdicts are the host's.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/span"
)

// ErrLost says that the agent is gone or does not answer. The provider knows
// whether its machine has died, and why.
var ErrLost = errors.New("the agent in the sandbox does not answer")

// ErrUnasked is an ErrLost of an agent that was not even asked: whatever it was
// to do has not begun.
var ErrUnasked = fmt.Errorf("%w: it was not reached", ErrLost)

// Guest talks to one agent, over one connection for each call.
type Guest struct {
	// Dial connects to the agent.
	Dial func(context.Context) (net.Conn, error)
	// Env and Limits are the sandbox's.
	Env    map[string]string
	Limits brig.Limits
	// Grace is how long the agent has to report the end of a process tree
	// that it was told to kill, before the machine counts as lost. Default 5 s.
	Grace time.Duration
}

// call opens a connection and asks one thing. The connection is closed when
// ctx ends.
func (g *Guest) call(ctx context.Context, c wire.Call) (net.Conn, func(), error) {
	// The step lasts as long as the connection does.
	_, s := span.Start(ctx, "guest.", string(c.Op))
	conn, err := g.Dial(ctx)
	if err != nil {
		s.Fail("lost")
		s.End()
		return nil, nil, fmt.Errorf("dial agent: %w (%w)", ErrUnasked, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	end := func() { stop(); conn.Close(); s.End() }
	c.Version = wire.Version
	if err := wire.WriteJSON(conn, wire.TypeCall, c); err != nil {
		end()
		return nil, nil, fmt.Errorf("ask agent: %w (%w)", ErrLost, err)
	}
	return conn, end, nil
}

// simple makes a call whose only answer is its end.
func (g *Guest) simple(ctx context.Context, c wire.Call) error {
	conn, end, err := g.call(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	return finish(ctx, wire.NewReader(conn))
}

// finish reads the frame that ends a call.
func finish(ctx context.Context, r *wire.Reader) error {
	f, err := r.Read()
	if err != nil {
		return lost(ctx, err)
	}
	return endOf(f)
}

// endOf is what a frame says that ends a call; any other is an error.
func endOf(f wire.Frame) error {
	switch f.Type {
	case wire.TypeOK:
		return nil
	case wire.TypeError:
		return agentError(f.Payload)
	default:
		return fmt.Errorf("unexpected frame %d: %w", f.Type, ErrLost)
	}
}

// lost tells a caller's own end from the agent's.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("read agent: %w (%w)", ErrLost, err)
}

// agentError turns what an agent says went wrong into an error for callers.
// The message is the guest's own and goes back to whoever owns the guest.
func agentError(payload []byte) error {
	var e wire.Error
	if err := json.Unmarshal(payload, &e); err != nil {
		return fmt.Errorf("decode error: %w (%w)", ErrLost, err)
	}
	if len(e.Message) > 1000 {
		e.Message = e.Message[:1000]
	}
	if e.Field == "path" {
		return pathError(e)
	}
	switch e.Kind {
	case "not_found", "invalid":
		field := ""
		switch e.Field {
		case "command", "cwd", "files":
			field = e.Field
		}
		err := brig.InvalidField(field, "%s", e.Message)
		if e.Kind == "not_found" && field == "command" {
			return err.WithHint("name a program that the image has, by path or in PATH")
		}
		return err
	case "gone":
		return brig.Errorf(brig.FailedPrecondition, "the sandbox has ended")
	case "unimplemented":
		return brig.Errorf(brig.Unimplemented, "%s", e.Message).WithHint("leave the user out; other providers have more accounts")
	case "refused":
		return brig.Errorf(brig.ConnectionFailed, "%s", e.Message).WithHint("start the server in the sandbox first")
	case "exhausted":
		return brig.Errorf(brig.FailedPrecondition, "the sandbox is at a limit: %s", e.Message).
			WithHint("raise limits.processes, limits.open_files or limits.disk")
	default:
		return fmt.Errorf("agent: %s", e.Message)
	}
}

// Ping returns when the agent has answered.
func (g *Guest) Ping(ctx context.Context) error {
	return g.simple(ctx, wire.Call{Op: wire.OpPing})
}

// Terminate asks every process to end and the agent with them, and returns
// when it has, at most a moment after grace.
func (g *Guest) Terminate(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+500*time.Millisecond)
	defer cancel()
	return g.simple(ctx, wire.Call{Op: wire.OpStop, Stop: &wire.Stop{GraceMS: grace.Milliseconds()}})
}

// maxExecs bounds how many executions an agent may say it remembers.
const maxExecs = 10_000

// Execs returns the executions that the agent remembers.
func (g *Guest) Execs(ctx context.Context) ([]*brig.Execution, error) {
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpExecs})
	if err != nil {
		return nil, err
	}
	defer end()
	r := wire.NewReader(conn)
	var out []*brig.Execution
	for {
		f, err := r.Read()
		if err != nil {
			return nil, lost(ctx, err)
		}
		switch {
		case f.Type == wire.TypeOK:
			return out, nil
		case f.Type == wire.TypeError:
			return nil, agentError(f.Payload)
		case f.Type != wire.TypeExec || len(out) == maxExecs:
			return nil, fmt.Errorf("unexpected frame %d: %w", f.Type, ErrLost)
		}
		var x wire.Execution
		if err := json.Unmarshal(f.Payload, &x); err != nil {
			return nil, fmt.Errorf("decode execution: %w (%w)", ErrLost, err)
		}
		out = append(out, execution(x))
	}
}

func execution(x wire.Execution) *brig.Execution {
	e := &brig.Execution{Command: brig.Command{Argv: x.Argv, Shell: x.Shell}}
	e.Result = brig.Result{ExecID: x.ID, Started: time.UnixMilli(x.StartedMS).UTC()}
	e.Stdout, e.Stderr = brig.Output(x.Stdout), brig.Output(x.Stderr)
	if x.Exit != nil {
		conclude(&e.Result, *x.Exit, false)
		e.Duration = time.Duration(x.EndedMS-x.StartedMS) * time.Millisecond
	}
	return e
}
