package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
)

// load is a set of clients of a server that may be killed.
type load struct {
	*ledger
	server    atomic.Pointer[Server] // the current server
	tag       string                 // makes the names of this load unique
	n         atomic.Int64
	work      sync.WaitGroup
	onSuccess func(op string, duration time.Duration) // receives the durations of successes; may be nil
	kills     [holderCount]atomic.Bool                // the holders whose interpreter must kill itself
}

// holderCount is the number of persistent sandboxes with variables.
const holderCount = 3

// callTimeout is the timeout of a client's call.
const callTimeout = time.Minute

// service returns the service of the current server.
func (l *load) service() brig.Service { return l.server.Load().Service }

// start starts the clients, which run until ctx is done.
func (l *load) start(ctx context.Context) {
	l.repeat(ctx, l.runProgram)
	l.repeat(ctx, l.runProgram)
	l.repeat(ctx, l.createAndDelete)
	for i := range holderCount {
		k := &holder{load: l, index: i}
		l.repeat(ctx, k.step)
	}
}

// repeat repeats an operation until ctx is done.
func (l *load) repeat(ctx context.Context, do func(ctx context.Context, n int64) (what string, err error)) {
	l.work.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
			what, err := do(call, l.n.Add(1))
			cancel()
			if err != nil {
				l.recordError(what, begin, err)
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}

// recordDuration records the duration of a successful operation.
func (l *load) recordDuration(op brig.Op, begin time.Time) {
	if l.onSuccess != nil {
		l.onSuccess(op.Name, time.Since(begin))
	}
}

// runProgram runs a one-shot program and checks its result.
func (l *load) runProgram(ctx context.Context, n int64) (string, error) {
	name, begin := fmt.Sprintf("shot-%s-%d", l.tag, n), time.Now()
	o, err := l.service().Run(ctx, brig.Program{SandboxName: name, Language: brig.Python, Code: "print('" + name + "')"}, brig.IO{})
	if err != nil {
		return "run", err
	}
	if out := string(o.Stdout.Head); out != name+"\n" {
		if o.ExitCode == 0 {
			l.recordLoss("run %s printed %q", name, out)
		}
		return "run", brig.Errorf(brig.Internal, "the program ended with %d %s", o.ExitCode, o.Signal)
	}
	l.recordDuration(brig.OpRun, begin)
	l.recordSuccess(brig.OpRun, "", func(c *Counts) {
		l.runs[name] = name + "\n"
		c.Runs++
		if o.Pool == brig.PoolHit {
			c.Hits++
		}
	})
	return "", nil
}

// createAndDelete creates a sandbox, with or without the pool, and removes it.
func (l *load) createAndDelete(ctx context.Context, n int64) (string, error) {
	spec := brig.Spec{Name: fmt.Sprintf("pass-%s-%d", l.tag, n)}
	if n%2 == 0 {
		spec.Command = &brig.Command{Argv: []string{"sleep", "600"}} // a sandbox with a command is never in the pool
	}
	begin := time.Now()
	box, err := l.service().Create(ctx, spec)
	if err != nil {
		return "create", err
	}
	l.recordDuration(brig.OpCreate, begin)
	l.recordSuccess(brig.OpCreate, box.ID, func(c *Counts) { c.Sandboxes++ })
	time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	now, err := l.service().Get(ctx, spec.Name)
	switch {
	case brig.KindOf(err) == brig.NotFound, err == nil && now.ID != box.ID:
		l.recordLoss("sandbox %s was made and is %+v, %v", spec.Name, now, err)
	case err != nil:
		return "get", err
	case now.State != brig.Running && !l.wasKilled(box.ID):
		l.recordLoss("sandbox %s was made and is %s, %+v", spec.Name, now.State, now.Exit)
	}
	if rand.IntN(2) == 0 {
		if _, err := l.service().Stop(ctx, spec.Name, 50*time.Millisecond); err != nil {
			return "stop", err
		}
		l.recordSuccess(brig.OpStop, box.ID, func(*Counts) {})
	}
	begin = time.Now()
	if err := l.service().Remove(ctx, spec.Name); err != nil {
		return "remove", err
	}
	l.recordDuration(brig.OpRemove, begin)
	l.recordSuccess(brig.OpRemove, box.ID, func(*Counts) { l.removed[box.ID] = spec.Name })
	return "", nil
}

// holder keeps a sandbox and a variable in its interpreter until the sandbox ends.
type holder struct {
	*load
	index          int
	box            *brig.Sandbox
	possibleValues map[string]bool // the possible values of the variable
	killPending    bool            // whether the interpreter was made to kill itself and the result is still unknown
	execID         string          // the ID of an execution that outlives its server; execOutput is its output
	execOutput     string
}

func (k *holder) step(ctx context.Context, n int64) (string, error) {
	if k.box == nil {
		spec := brig.Spec{Name: fmt.Sprintf("keep-%s-%d", k.tag, n), TTL: time.Hour}
		box, err := k.service().Create(ctx, spec)
		if err != nil {
			return "create", err
		}
		k.recordSuccess(brig.OpCreate, box.ID, func(c *Counts) { c.Sandboxes++ })
		k.box, k.possibleValues, k.killPending, k.execID = box, map[string]bool{"None": true}, false, ""
	}
	if what, err := k.updateVariable(ctx, n); err != nil {
		return what, k.abandon(ctx, err)
	}
	if what, err := k.startOrCheckExec(ctx, n); err != nil {
		return what, k.abandon(ctx, err)
	}
	time.Sleep(20 * time.Millisecond)
	return "", nil
}

// abandon drops a sandbox that has ended.
func (k *holder) abandon(ctx context.Context, err error) error {
	if brig.KindOf(err) == brig.ConnectionFailed {
		return err
	}
	box, getErr := k.service().Get(ctx, k.box.Spec.Name)
	switch {
	case brig.KindOf(getErr) == brig.ConnectionFailed:
		return getErr
	case getErr != nil:
		k.recordLoss("sandbox %s: %v", k.box.Spec.Name, getErr)
	case k.wasKilled(box.ID):
		// The sandbox may still run without one of its processes.
	case box.State == brig.Running:
		return err
	default:
		k.recordLoss("sandbox %s is %s, %+v", box.Spec.Name, box.State, box.Exit)
	}
	k.box = nil
	return err
}

// updateVariable reads the variable and assigns a new value.
func (k *holder) updateVariable(ctx context.Context, n int64) (string, error) {
	die := k.kills[k.index].Swap(false)
	if die {
		k.killPending = true
		k.recordSelfKill()
	}
	source := fmt.Sprintf("print(globals().get('x'))\nx = %d", n)
	if die {
		source += "\nimport os, sys\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"
	}
	begin := time.Now()
	k.possibleValues[fmt.Sprint(n)] = true
	res, err := k.service().RunCode(ctx, k.box.Spec.Name, brig.Code{Source: source}, nil)
	if err != nil {
		k.possibleValues["None"] = k.possibleValues["None"] || k.killPending
		return "code", err
	}
	k.recordSuccess(brig.OpRunCode, k.box.ID, func(c *Counts) { c.Codes++; c.Checked++ })
	was := strings.TrimSpace(string(res.Stdout.Head))
	if res.Error == nil && !k.possibleValues[was] {
		k.recordLoss("the variable of %s is %s, and may be one of %v", k.box.Spec.Name, was, k.possibleValues)
	}
	switch {
	case res.Lost:
		if !k.killPending && !k.wasKilled(k.box.ID) {
			k.recordLoss("the interpreter of %s: %+v", k.box.Spec.Name, res.Error)
		}
		k.killPending = false
		k.possibleValues = map[string]bool{"None": true}
	case res.Error != nil:
		return "code", brig.Errorf(brig.Internal, "%s: %s", res.Error.Name, res.Error.Value)
	default:
		k.recordDuration(brig.OpRunCode, begin)
		k.killPending = false
		k.possibleValues = map[string]bool{fmt.Sprint(n): true}
	}
	return "", nil
}

// startOrCheckExec starts an execution that outlives its server, or reads the result of the
// last one.
func (k *holder) startOrCheckExec(ctx context.Context, n int64) (string, error) {
	if k.execID != "" {
		x, err := k.service().GetExec(ctx, k.box.Spec.Name, k.execID)
		switch {
		case brig.KindOf(err) == brig.NotFound:
			k.recordLoss("execution %s of %s", k.execID, k.box.Spec.Name)
		case err != nil:
			return "get exec", err
		case !x.Done:
			return "", nil
		case string(x.Stdout.Head) != k.execOutput && !k.wasKilled(k.box.ID):
			k.recordLoss("execution %s of %s wrote %q and ended with %d", k.execID, k.box.Spec.Name, x.Stdout.Head, x.ExitCode)
		}
		k.recordSuccess(brig.Op{}, "", func(c *Counts) { c.Checked++ })
		k.execID = ""
		return "", nil
	}
	k.execOutput = fmt.Sprintf("word-%d\n", n)
	begin := time.Now()
	cmd := brig.Command{Shell: "sleep 0.1; echo " + strings.TrimSpace(k.execOutput), Survive: true}
	res, err := k.service().Exec(ctx, k.box.Spec.Name, cmd, brig.IO{Started: func(id string) { k.execID = id }})
	if err != nil {
		return "exec", err
	}
	k.recordDuration(brig.OpExec, begin)
	k.execID = res.ExecID
	k.recordSuccess(brig.OpExec, k.box.ID, func(c *Counts) { c.Executions++ })
	return "", nil
}
