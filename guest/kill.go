package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

const (
	// AgentTimeout is the maximum time that an agent with a pending kill may be silent before the
	// sandbox counts as lost. Only responses on connections that were opened for the request count.
	// Output does not count, because an agent that only forwards a program's output does not work.
	// Programs that use all processors of the sandbox may delay the agent by seconds, which must
	// not end the sandbox and lose its state.
	AgentTimeout = 30 * time.Second
	// treeTimeout is the maximum time for a responsive agent to kill one process tree. Trees end in
	// milliseconds. An agent that needs longer is broken, even if it responds. The host must
	// guarantee the execution's time limit.
	treeTimeout = 2 * time.Minute
	// killRetry is the timeout of one kill request, after which the host sends another request.
	killRetry = 10 * time.Second
	// reconnectDelay is the minimum time for an agent to end a tree if the
	// connection of the execution broke during the kill.
	reconnectDelay = 15 * time.Second
	// exitTimeout is the maximum time from the report that a process tree has ended to the report
	// of the process's exit. afterBytes is the maximum output between the two reports: buffered
	// data, and the output of other processes that hold the pipes during the agent's drainPeriod.
	exitTimeout = time.Minute
	afterBytes  = 256 << 20
	// An agent counts as lost if it has closed at least maxCloses connections in a row without a
	// response, over at least closeTimeout.
	maxCloses    = 8
	closeTimeout = AgentTimeout
	// retryPause is the pause between two requests to kill a tree that has not
	// ended.
	retryPause = 250 * time.Millisecond
	// batchDelay is how long a kill request waits for other trees to be added.
	batchDelay = 2 * time.Millisecond
)

// ErrAgentGone is an ErrLost for an agent that did not respond in time. The server logs its message
// as the reason for the end of a sandbox.
var ErrAgentGone = fmt.Errorf("%w, on new connections either, within %v", ErrLost, AgentTimeout)

// errKillFailed is an ErrAgentGone for an agent that responds but does not end a process tree.
var errKillFailed = fmt.Errorf("%w: it answers, but did not end a process tree within %v", ErrAgentGone, treeTimeout)

// errAgentCloses is an ErrAgentGone for an agent that accepts connections but
// closes them without a response.
var errAgentCloses = fmt.Errorf("%w: it closes every connection", ErrAgentGone)

// errNoExit is an ErrAgentGone for an agent that does not report the exit of a
// process.
var errNoExit = fmt.Errorf("%w: the exit of a process that it has killed does not come", ErrAgentGone)

// killTimeouts are the time limits of a kill. Tests use shorter limits.
type killTimeouts struct{ agent, tree, retry, rest, broken, exit, closes time.Duration }

func (g *Guest) killTimeouts() killTimeouts {
	if g.Grace > 0 {
		return killTimeouts{agent: g.Grace, tree: g.Grace, retry: g.Grace, rest: g.Grace, broken: g.Grace, exit: g.Grace, closes: g.Grace}
	}
	if g.test != nil {
		return *g.test
	}
	return killTimeouts{agent: AgentTimeout, tree: treeTimeout, retry: killRetry, rest: retryPause, broken: reconnectDelay, exit: exitTimeout, closes: closeTimeout}
}

// killBatcher collects the process trees to kill, and sends several of them to the agent in one
// call. The trees compete with the agent for CPU time, and separate calls would make the agent
// search for processes once per tree.
type killBatcher struct {
	mu   sync.Mutex // guards the field below
	next *killCall  // not sent yet
}

// killCall is one call that kills trees.
type killCall struct {
	ids  []string
	done chan struct{} // closed when err is known
	err  error
}

// killTree makes the agent kill the process tree of an execution. It returns when the agent reports
// that all processes of the tree have ended.
func (g *Guest) killTree(ctx context.Context, id string) error {
	g.kills.mu.Lock()
	c := g.kills.next
	if c == nil {
		c = &killCall{done: make(chan struct{})}
		g.kills.next = c
		time.AfterFunc(batchDelay, func() { g.send(c) })
	}
	if !slices.Contains(c.ids, id) {
		c.ids = append(c.ids, id)
	}
	g.kills.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send makes a kill call. Several callers wait for it, so it has its own
// timeout.
func (g *Guest) send(c *killCall) {
	g.kills.mu.Lock()
	g.kills.next = nil
	g.kills.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), g.killTimeouts().retry) //nolint:forbidigo // for many callers
	defer cancel()
	// Agents of earlier versions read only the first id. The callers with other
	// ids retry.
	c.err = g.callWithoutResult(ctx, wire.Call{Op: wire.OpKill, Kill: &wire.Kill{ID: c.ids[0], More: c.ids[1:]}})
	close(c.done)
}

// treeKill is the kill of the process tree of an execution or a process. The host repeats the
// request until the tree has ended or the agent counts as lost.
type treeKill struct {
	once sync.Once
	ctx  context.Context // ends when no caller waits for the tree's end
	stop context.CancelFunc
	done chan struct{} // closed when err is known
	err  error         // the reason why the agent counts as gone; nil if the tree is gone
	// The times of the start and of the agent's last response, in nanoseconds,
	// or 0 before the start.
	began, alive atomic.Int64
	// The number of connections in a row that were closed without a response,
	// and the time of the first one.
	closed int
	since  time.Time
}

func newTreeKill(ctx context.Context) *treeKill {
	f := &treeKill{done: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	return f
}

// recordAlive records that the agent has just responded.
func (f *treeKill) recordAlive() {
	f.alive.Store(time.Now().UnixNano())
	f.closed = 0
}

// timeSinceAnswer returns the time since the agent's last response.
func (f *treeKill) timeSinceAnswer() time.Duration { return time.Since(time.Unix(0, f.alive.Load())) }

// start begins a kill, or continues one whose connection broke. In the second
// case the agent has only its remaining time, but at least p.broken.
func (f *treeKill) start(p killTimeouts) {
	now := time.Now()
	if f.began.CompareAndSwap(0, now.UnixNano()) {
		f.alive.Store(now.UnixNano())
		return
	}
	f.alive.Store(max(f.alive.Load(), now.Add(p.broken-p.agent).UnixNano()))
}

// pendingKillError is the error of an execution that was being killed.
type pendingKillError struct {
	error
	began, alive int64
}

func (u pendingKillError) Unwrap() error { return u.error }

// endWith ends a kill. It adds the state of the kill to the error that ended
// the execution.
func (f *treeKill) endWith(err error) error {
	f.stop()
	if began := f.began.Load(); began != 0 && errors.Is(err, ErrLost) {
		return pendingKillError{err, began, f.alive.Load()}
	}
	return err
}

// recordFailure records the error of a request without a response.
func (f *treeKill) recordFailure(err error) {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		f.closed = 0 // the agent did not just close the connection
		return
	}
	if f.closed == 0 {
		f.since = time.Now()
	}
	f.closed++
}

// goneError returns the reason why the agent counts as lost, or nil if the kill has not failed.
func (f *treeKill) goneError() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// kill makes the agent kill the process tree, and repeats the request as needed. It returns when
// the agent has reported the end of the tree, when the agent counts as lost, or when all callers
// have stopped waiting.
func (x *exec) kill() {
	x.treeKill.once.Do(func() {
		f := x.treeKill
		f.err = x.g.runTreeKill(f, x.id, false)
		close(f.done)
		switch {
		case f.err != nil:
			x.conn.Close() // stop the reader
		default:
			p := x.g.killTimeouts()
			x.after.begin(p.exit)
			go x.expectExit(p.rest)
		}
	})
	<-x.treeKill.done
}

// expectExit waits for the exit report of an execution whose tree has ended. If the exit does not
// arrive in time, it closes the connection.
func (x *exec) expectExit(rest time.Duration) {
	for sleep(x.treeKill.ctx, rest) {
		if x.after.goneError() != nil {
			x.conn.Close()
			return
		}
	}
}

// postKillLimit limits the data and the time on an execution's connection after its process tree
// has ended. Only the time during which the reader waits for the agent counts, not the time during
// which the caller processes the output.
type postKillLimit struct {
	mu      sync.Mutex    // guards the fields below
	time    time.Duration // maximum waiting time of the reader; 0 before begin
	waited  time.Duration // total waiting time since begin
	waiting time.Time     // start of the reader's current wait, or zero
	bytes   int64         // received since begin
}

func (a *postKillLimit) begin(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.time = d
	if !a.waiting.IsZero() {
		a.waiting = time.Now()
	}
}

// startWait records that the reader starts to wait.
func (a *postKillLimit) startWait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = time.Now()
}

// recordRead records that the reader received n bytes.
func (a *postKillLimit) recordRead(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.time > 0 {
		a.waited += time.Since(a.waiting)
		a.bytes += int64(n)
	}
	a.waiting = time.Time{}
}

// goneError returns the reason why the agent counts as lost, or nil otherwise.
func (a *postKillLimit) goneError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	waited := a.waited
	if !a.waiting.IsZero() {
		waited += time.Since(a.waiting)
	}
	switch {
	case a.time == 0:
		return nil
	case a.bytes > afterBytes:
		return newViolation("%d bytes of output of a process tree that is gone", a.bytes)
	case waited >= a.time:
		return errNoExit
	}
	return nil
}

// sleep waits for d, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// runTreeKill kills a process tree, and returns nil when the agent reports that the tree has ended.
// broken means that the connection of the execution broke.
func (g *Guest) runTreeKill(f *treeKill, id string, broken bool) error {
	p := g.killTimeouts()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	if g.Done != nil {
		go func() {
			select {
			case <-g.Done:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	f.start(p)
	for begin := time.Unix(0, f.began.Load()); ; {
		kctx, kcancel := context.WithTimeout(ctx, p.retry)
		err := g.killTree(kctx, id)
		kcancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("kill a process tree: %w (%w)", ErrLost, context.Cause(ctx))
		case errors.Is(err, ErrViolation):
			return err
		case !errors.Is(err, ErrLost) && !errors.Is(err, context.DeadlineExceeded):
			f.recordAlive() // the agent has answered with an error
		case g.Remote && broken && errors.Is(err, ErrNotReached) && time.Since(begin) >= LostTimeout:
			return err // the supervisor's host cannot be reached either
		default:
			f.recordFailure(err)
			if g.Grace > 0 {
				break
			}
			// The agent may be slow with trees. Allow the agent its remaining time to respond to a
			// ping.
			pctx, pcancel := context.WithTimeout(ctx, max(p.rest, p.agent-f.timeSinceAnswer()))
			err = g.Ping(pctx)
			pcancel()
			switch {
			case err == nil:
				f.recordAlive()
			case errors.Is(err, ErrViolation):
				return err
			default:
				f.recordFailure(err)
			}
		}
		switch {
		case f.timeSinceAnswer() >= p.agent:
			return ErrAgentGone
		case time.Since(begin) >= p.tree:
			return errKillFailed
		case !g.Remote && f.closed >= maxCloses && time.Since(f.since) >= p.closes:
			return errAgentCloses
		}
		if !sleep(ctx, p.rest) {
			return fmt.Errorf("kill a process tree: %w (%w)", ErrLost, context.Cause(ctx))
		}
	}
}

// timedConn is a connection that measures how long its reader waits.
type timedConn struct {
	net.Conn
	after *postKillLimit
}

func (h timedConn) Read(p []byte) (int, error) {
	h.after.startWait()
	n, err := h.Conn.Read(p)
	h.after.recordRead(n)
	return n, err
}
