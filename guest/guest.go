// Package guest is the host's side of the agent inside a sandbox. A provider that can connect to an
// agent embeds Guest, which implements processes, files and artifacts. The package treats the agent
// as compromised: it limits the length of all data and relies only on the host's clock and state.
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

// ErrLost means that the agent has exited or does not respond. The provider determines whether the
// sandbox has ended, and why.
var ErrLost = errors.New("the agent in the sandbox does not answer")

// ErrNotReached is an ErrLost for a call that did not reach the agent, so that
// the requested work was not started.
var ErrNotReached = fmt.Errorf("%w: it was not reached", ErrLost)

// ErrViolation is an ErrLost for an agent that violated the protocol: it sent a malformed,
// oversized or unexpected frame. Load may slow an agent down but never causes violations, so the
// host does not wait for such an agent.
var ErrViolation = fmt.Errorf("%w as the protocol says", ErrLost)

// newViolation returns an ErrViolation with a description.
func newViolation(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrViolation)
}

// newMalformedError returns the ErrViolation for a payload that cannot be decoded.
func newMalformedError(what string, err error) error {
	return fmt.Errorf("decode %s: %w (%w)", what, ErrViolation, err)
}

// newUnreadableError returns the error for a response that could not be read.
func newUnreadableError(err error) error {
	if errors.Is(err, wire.ErrTooLarge) {
		return fmt.Errorf("read agent: %w (%w)", ErrViolation, err)
	}
	return fmt.Errorf("read agent: %w (%w)", ErrLost, err)
}

// Guest communicates with one agent, over a separate connection for each call.
type Guest struct {
	// Dial connects to the agent.
	Dial func(context.Context) (net.Conn, error)
	// Env and Limits are the environment and the limits of the sandbox.
	Env    map[string]string
	Limits brig.Limits
	// Grace, if set, is the maximum time for the agent to kill a process tree and report its end.
	// Afterwards the sandbox counts as lost. Grace is for sandboxes that are about to end anyway.
	// The default is AgentTimeout.
	Grace time.Duration
	// Done, if set, is closed when the sandbox ends. Afterwards the host does not wait for
	// responses from the agent.
	Done <-chan struct{}
	// Remote means that the connection to the agent may fail while the sandbox
	// is healthy.
	Remote bool

	kills killBatcher
	test  *killTimeouts // set only in tests
}

// call opens a connection and sends one call. The connection is closed when ctx
// ends.
func (g *Guest) call(ctx context.Context, c wire.Call) (net.Conn, func(), error) {
	return g.callFrom(ctx, ctx, c)
}

// callFrom is like call, for a connection that outlives its dial context.
func (g *Guest) callFrom(dial, ctx context.Context, c wire.Call) (net.Conn, func(), error) {
	// The span lasts as long as the connection.
	_, s := span.Start(ctx, "guest.", string(c.Op))
	conn, err := g.Dial(dial)
	if err != nil {
		s.Fail("lost")
		s.End()
		return nil, nil, fmt.Errorf("dial agent: %w (%w)", ErrNotReached, err)
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

// callWithoutResult makes a call that returns only success or an error.
func (g *Guest) callWithoutResult(ctx context.Context, c wire.Call) error {
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
		return causeOrError(ctx, err)
	}
	return endOf(f)
}

// endOf returns the call's result from its last frame, or an error for any other frame.
func endOf(f wire.Frame) error {
	switch f.Type {
	case wire.TypeOK:
		return nil
	case wire.TypeError:
		return decodeAgentError(f.Payload)
	default:
		return newViolation("unexpected frame %d", f.Type)
	}
}

// causeOrError returns the cause of ctx if ctx has ended, and otherwise the
// agent's failure.
func causeOrError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return newUnreadableError(err)
}

// decodeAgentError converts an agent's error to an error for callers. The message
// comes from the guest and is returned to the sandbox's owner.
func decodeAgentError(payload []byte) error {
	var e wire.Error
	if err := json.Unmarshal(payload, &e); err != nil {
		return newMalformedError("error", err)
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
		case "command", "cwd", "files", "user":
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

// Ping waits for a response of the agent.
func (g *Guest) Ping(ctx context.Context) error {
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpPing})
}

// Terminate ends all processes and then the agent. It returns when the agent has ended, or shortly
// after grace.
func (g *Guest) Terminate(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+500*time.Millisecond)
	defer cancel()
	return g.callWithoutResult(ctx, wire.Call{Op: wire.OpStop, Stop: &wire.Stop{GraceMS: grace.Milliseconds()}})
}

// Limits of a list that an agent or a supervisor sends.
const (
	maxExecs     = 10_000
	maxExecBytes = 64 << 20 // of all executions, including their output
	maxStates    = 4 << 20  // bytes
)

// Execs returns the executions whose results the agent retains.
func (g *Guest) Execs(ctx context.Context) ([]*brig.Execution, error) {
	conn, end, err := g.call(ctx, wire.Call{Op: wire.OpExecs})
	if err != nil {
		return nil, err
	}
	defer end()
	r := wire.NewReader(conn)
	var out []*brig.Execution
	for size := 0; ; {
		f, err := r.Read()
		if err != nil {
			return nil, causeOrError(ctx, err)
		}
		size += len(f.Payload)
		switch {
		case f.Type == wire.TypeOK:
			return out, nil
		case f.Type == wire.TypeError:
			return nil, decodeAgentError(f.Payload)
		case f.Type != wire.TypeExec || len(out) == maxExecs || size > maxExecBytes:
			return nil, newViolation("unexpected frame %d", f.Type)
		}
		var x wire.Execution
		if err := json.Unmarshal(f.Payload, &x); err != nil {
			return nil, newMalformedError("execution", err)
		}
		out = append(out, newExecution(x))
	}
}

func newExecution(x wire.Execution) *brig.Execution {
	e := &brig.Execution{Command: brig.Command{Argv: x.Argv, Shell: x.Shell}}
	e.Result = brig.Result{ExecID: x.ID, Started: time.UnixMilli(x.StartedMS).UTC()}
	e.Stdout, e.Stderr = brig.Output(x.Stdout), brig.Output(x.Stderr)
	if x.Exit != nil {
		setResult(&e.Result, *x.Exit, false)
		e.Duration = time.Duration(x.EndedMS-x.StartedMS) * time.Millisecond
		e.Done, e.Draining = !x.Draining, x.Draining
	}
	return e
}
