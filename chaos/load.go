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

// load is clients at work on a server that may die.
type load struct {
	*ledger
	server atomic.Pointer[Server] // the present one
	tag    string                 // tells the names of this load from others
	n      atomic.Int64
	work   sync.WaitGroup
	spent  func(op string, took time.Duration) // of what succeeded; may be nil
	kills  [keepers]atomic.Bool                // whose interpreter is to kill itself
}

// keepers is how many sandboxes stay, with their variables.
const keepers = 3

// callTime bounds one call of a client.
const callTime = time.Minute

// svc is the present server's service.
func (l *load) svc() brig.Service { return l.server.Load().Service }

// start starts the clients, which work until ctx ends.
func (l *load) start(ctx context.Context) {
	l.client(ctx, l.shot)
	l.client(ctx, l.shot)
	l.client(ctx, l.pass)
	for i := range keepers {
		k := &keeper{load: l, index: i}
		l.client(ctx, k.turn)
	}
}

// client does one thing again and again.
func (l *load) client(ctx context.Context, do func(ctx context.Context, n int64) (what string, err error)) {
	l.work.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
			what, err := do(call, l.n.Add(1))
			cancel()
			if err != nil {
				l.refused(what, begin, err)
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
}

// timed notes how long a success took.
func (l *load) timed(op brig.Op, begin time.Time) {
	if l.spent != nil {
		l.spent(op.Name, time.Since(begin))
	}
}

// shot runs a one-shot.
func (l *load) shot(ctx context.Context, n int64) (string, error) {
	name, begin := fmt.Sprintf("shot-%s-%d", l.tag, n), time.Now()
	o, err := l.svc().Run(ctx, brig.Program{Name: name, Language: brig.Python, Code: "print('" + name + "')"}, brig.IO{})
	if err != nil {
		return "run", err
	}
	if out := string(o.Stdout.Head); out != name+"\n" {
		if o.ExitCode == 0 {
			l.lose("run %s printed %q", name, out)
		}
		return "run", brig.Errorf(brig.Internal, "the program ended with %d %s", o.ExitCode, o.Signal)
	}
	l.timed(brig.OpRun, begin)
	l.ack(brig.OpRun, "", func(c *Counts) {
		l.runs[name] = name + "\n"
		c.Runs++
		if o.Pool == brig.PoolHit {
			c.Hits++
		}
	})
	return "", nil
}

// pass makes a sandbox, of the pool or from scratch, and removes it.
func (l *load) pass(ctx context.Context, n int64) (string, error) {
	spec := brig.Spec{Name: fmt.Sprintf("pass-%s-%d", l.tag, n)}
	if n%2 == 0 {
		spec.Command = &brig.Command{Argv: []string{"sleep", "600"}} // such a one is never in the pool
	}
	begin := time.Now()
	box, err := l.svc().Create(ctx, spec)
	if err != nil {
		return "create", err
	}
	l.timed(brig.OpCreate, begin)
	l.ack(brig.OpCreate, box.ID, func(c *Counts) { c.Sandboxes++ })
	time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	now, err := l.svc().Get(ctx, spec.Name)
	switch {
	case brig.KindOf(err) == brig.NotFound, err == nil && now.ID != box.ID:
		l.lose("sandbox %s was made and is %+v, %v", spec.Name, now, err)
	case err != nil:
		return "get", err
	case now.State != brig.Running && !l.isDoomed(box.ID):
		l.lose("sandbox %s was made and is %s, %+v", spec.Name, now.State, now.Exit)
	}
	if rand.IntN(2) == 0 {
		if _, err := l.svc().Stop(ctx, spec.Name, 50*time.Millisecond); err != nil {
			return "stop", err
		}
		l.ack(brig.OpStop, box.ID, func(*Counts) {})
	}
	begin = time.Now()
	if err := l.svc().Remove(ctx, spec.Name); err != nil {
		return "remove", err
	}
	l.timed(brig.OpRemove, begin)
	l.ack(brig.OpRemove, box.ID, func(*Counts) { l.gone[box.ID] = spec.Name })
	return "", nil
}

// keeper has one sandbox as long as it lives, and a variable in it.
type keeper struct {
	*load
	index int
	box   *brig.Sandbox
	may   map[string]bool // what the variable may be
	dying bool            // its interpreter was told to kill itself, and nobody knows yet whether it has
	under string          // an execution that survives, and what it writes
	word  string
}

func (k *keeper) turn(ctx context.Context, n int64) (string, error) {
	if k.box == nil {
		spec := brig.Spec{Name: fmt.Sprintf("keep-%s-%d", k.tag, n), TTL: time.Hour}
		box, err := k.svc().Create(ctx, spec)
		if err != nil {
			return "create", err
		}
		k.ack(brig.OpCreate, box.ID, func(c *Counts) { c.Sandboxes++ })
		k.box, k.may, k.dying, k.under = box, map[string]bool{"None": true}, false, ""
	}
	if what, err := k.code(ctx, n); err != nil {
		return what, k.mourn(ctx, err)
	}
	if what, err := k.exec(ctx, n); err != nil {
		return what, k.mourn(ctx, err)
	}
	time.Sleep(20 * time.Millisecond)
	return "", nil
}

// mourn gives a sandbox up that has ended.
func (k *keeper) mourn(ctx context.Context, err error) error {
	if brig.KindOf(err) == brig.ConnectionFailed {
		return err
	}
	box, getErr := k.svc().Get(ctx, k.box.Spec.Name)
	switch {
	case brig.KindOf(getErr) == brig.ConnectionFailed:
		return getErr
	case getErr != nil:
		k.lose("sandbox %s: %v", k.box.Spec.Name, getErr)
	case k.isDoomed(box.ID):
		// It may limp on without one of its parts.
	case box.State == brig.Running:
		return err
	default:
		k.lose("sandbox %s is %s, %+v", box.Spec.Name, box.State, box.Exit)
	}
	k.box = nil
	return err
}

// code looks at the variable and gives it a new value.
func (k *keeper) code(ctx context.Context, n int64) (string, error) {
	die := k.kills[k.index].Swap(false)
	if die {
		k.dying = true
		k.die()
	}
	source := fmt.Sprintf("print(globals().get('x'))\nx = %d", n)
	if die {
		source += "\nimport os, sys\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"
	}
	begin := time.Now()
	k.may[fmt.Sprint(n)] = true
	res, err := k.svc().RunCode(ctx, k.box.Spec.Name, brig.Code{Source: source}, nil)
	if err != nil {
		k.may["None"] = k.may["None"] || k.dying
		return "code", err
	}
	k.ack(brig.OpRunCode, k.box.ID, func(c *Counts) { c.Codes++; c.Checked++ })
	was := strings.TrimSpace(string(res.Stdout.Head))
	if res.Error == nil && !k.may[was] {
		k.lose("the variable of %s is %s, and may be one of %v", k.box.Spec.Name, was, k.may)
	}
	switch {
	case res.Lost:
		if !k.dying && !k.isDoomed(k.box.ID) {
			k.lose("the interpreter of %s: %+v", k.box.Spec.Name, res.Error)
		}
		k.dying = false
		k.may = map[string]bool{"None": true}
	case res.Error != nil:
		return "code", brig.Errorf(brig.Internal, "%s: %s", res.Error.Name, res.Error.Value)
	default:
		k.timed(brig.OpRunCode, begin)
		k.dying = false
		k.may = map[string]bool{fmt.Sprint(n): true}
	}
	return "", nil
}

// exec starts an execution that outlives its server, or looks how the last
// one went.
func (k *keeper) exec(ctx context.Context, n int64) (string, error) {
	if k.under != "" {
		x, err := k.svc().GetExec(ctx, k.box.Spec.Name, k.under)
		switch {
		case brig.KindOf(err) == brig.NotFound:
			k.lose("execution %s of %s", k.under, k.box.Spec.Name)
		case err != nil:
			return "get exec", err
		case !x.Done:
			return "", nil
		case string(x.Stdout.Head) != k.word && !k.isDoomed(k.box.ID):
			k.lose("execution %s of %s wrote %q and ended with %d", k.under, k.box.Spec.Name, x.Stdout.Head, x.ExitCode)
		}
		k.ack(brig.Op{}, "", func(c *Counts) { c.Checked++ })
		k.under = ""
		return "", nil
	}
	k.word = fmt.Sprintf("word-%d\n", n)
	begin := time.Now()
	cmd := brig.Command{Shell: "sleep 0.1; echo " + strings.TrimSpace(k.word), Survive: true}
	res, err := k.svc().Exec(ctx, k.box.Spec.Name, cmd, brig.IO{Started: func(id string) { k.under = id }})
	if err != nil {
		return "exec", err
	}
	k.timed(brig.OpExec, begin)
	k.under = res.ExecID
	k.ack(brig.OpExec, k.box.ID, func(c *Counts) { c.Executions++ })
	return "", nil
}
