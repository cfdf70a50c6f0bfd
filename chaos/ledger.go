package chaos

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// ledger records the results that a server has acknowledged. They must outlive the server.
type ledger struct {
	mu          sync.Mutex // guards the fields below
	runs        map[string]string
	removed     map[brig.ID]string // the names of sandboxes whose removal was acknowledged
	killed      map[brig.ID]bool   // sandboxes of which a process was killed
	lastKill    time.Time          // time of the last kill
	events      map[done]int       // successful operations
	errors      map[brig.Kind]int  // errors, by kind
	counts      Counts
	lost        []string
	unexplained []string // errors that no kill explains
}

// done is a successful operation on a sandbox.
type done struct {
	op string
	id brig.ID
}

// Counts are the numbers of successful operations.
type Counts struct {
	Runs       int `json:"runs"`
	Hits       int `json:"pool_hits"`
	Sandboxes  int `json:"sandboxes"`
	Executions int `json:"executions"`
	Codes      int `json:"codes"`
	Checked    int `json:"checked"`
}

func newLedger() *ledger {
	return &ledger{
		runs: map[string]string{}, removed: map[brig.ID]string{}, killed: map[brig.ID]bool{},
		events: map[done]int{}, errors: map[brig.Kind]int{},
	}
}

// recordSuccess records a successful operation, whose event must be in the audit log.
func (l *ledger) recordSuccess(op brig.Op, id brig.ID, f func(*Counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op.Changes {
		l.events[done{op.Name, id}]++
	}
	f(&l.counts)
}

// successes returns the numbers of successful operations so far.
func (l *ledger) successes() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// recordLoss records the loss of an acknowledged result.
func (l *ledger) recordLoss(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, fmt.Sprintf(format, args...))
}

func (l *ledger) markKilled(id brig.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed[id], l.lastKill = true, time.Now()
}

// recordSelfKill records that an interpreter is about to kill itself.
func (l *ledger) recordSelfKill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastKill = time.Now()
}

func (l *ledger) wasKilled(id brig.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed[id]
}

// blameWindow is the time after a kill during which it may explain an error.
const blameWindow = 5 * time.Second

// recordError records an error. The error is unexplained unless the connection
// failed or a process was killed shortly before the call.
func (l *ledger) recordError(what string, begin time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := brig.KindOf(err)
	l.errors[kind]++
	if kind != brig.ConnectionFailed && l.lastKill.Before(begin.Add(-blameWindow)) {
		l.unexplained = append(l.unexplained, fmt.Sprintf("%s: %s: %v", what, kind, err))
	}
}

// countMissing compares the events of a store with the acknowledged operations, and
// returns the number of missing events.
func (l *ledger) countMissing(events []brig.Event) (missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, runs := map[done]int{}, 0
	for _, e := range events {
		if e.Phase != brig.Finish || e.Kind != "" {
			continue
		}
		have[done{e.Op, e.Sandbox}]++
		if e.Op == brig.OpRun.Name {
			runs++
		}
	}
	have[done{op: brig.OpRun.Name}] = runs // the caller of a run does not know the sandbox's ID
	for e, n := range l.events {
		missing += max(n-have[e], 0)
	}
	return missing
}

// check requests every acknowledged result, and checks that removed sandboxes
// no longer exist.
func (l *ledger) check(ctx context.Context, svc brig.Service) {
	l.mu.Lock()
	runs, removed := maps.Clone(l.runs), maps.Clone(l.removed)
	l.counts.Checked += len(runs) + len(removed)
	l.mu.Unlock()
	for name, out := range runs {
		if o, err := svc.GetRun(ctx, name); err != nil || string(o.Stdout.Head) != out {
			l.recordLoss("run %s: %v", name, err)
		}
	}
	for id, name := range removed {
		if box, err := svc.Get(ctx, string(id)); brig.KindOf(err) != brig.NotFound {
			l.recordLoss("sandbox %s was removed and is there: %+v, %v", name, box, err)
		}
	}
}
