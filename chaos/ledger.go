package chaos

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// ledger is what a server has said, and may not forget by dying.
type ledger struct {
	mu     sync.Mutex // guards the fields below
	runs   map[string]string
	gone   map[brig.ID]string // names of those whose removal was acknowledged
	doomed map[brig.ID]bool   // sandboxes of which a process was killed
	deaths time.Time          // when one was last
	events map[done]int       // successful outcomes
	told   map[brig.Kind]int  // errors, by kind
	counts Counts
	lost   []string
	odd    []string // errors that nothing explains
}

// done is an operation that succeeded, on a sandbox.
type done struct {
	op string
	id brig.ID
}

// Counts is what happened.
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
		runs: map[string]string{}, gone: map[brig.ID]string{}, doomed: map[brig.ID]bool{},
		events: map[done]int{}, told: map[brig.Kind]int{},
	}
}

// ack notes a success: its event must be on record.
func (l *ledger) ack(op brig.Op, id brig.ID, f func(*Counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op.Changes {
		l.events[done{op.Name, id}]++
	}
	f(&l.counts)
}

// done counts what succeeded until now.
func (l *ledger) done() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// lose notes something acknowledged that is not there.
func (l *ledger) lose(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, fmt.Sprintf(format, args...))
}

func (l *ledger) doom(id brig.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doomed[id], l.deaths = true, time.Now()
}

// die notes that an interpreter is about to kill itself.
func (l *ledger) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaths = time.Now()
}

func (l *ledger) isDoomed(id brig.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doomed[id]
}

// blame is how long a killed process may be the reason of an error.
const blame = 5 * time.Second

// refused notes an error. A dead server and a dead machine explain theirs.
func (l *ledger) refused(what string, begin time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := brig.KindOf(err)
	l.told[kind]++
	if kind != brig.ConnectionFailed && l.deaths.Before(begin.Add(-blame)) {
		l.odd = append(l.odd, fmt.Sprintf("%s: %s: %v", what, kind, err))
	}
}

// audit holds the events of a store to what was acknowledged.
func (l *ledger) audit(events []brig.Event) (missing int) {
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
	have[done{op: brig.OpRun.Name}] = runs // a caller does not know its sandbox's id
	for e, n := range l.events {
		missing += max(n-have[e], 0)
	}
	return missing
}

// check asks for every result that was acknowledged, and for none that was
// removed.
func (l *ledger) check(ctx context.Context, svc brig.Service) {
	l.mu.Lock()
	runs, gone := maps.Clone(l.runs), maps.Clone(l.gone)
	l.counts.Checked += len(runs) + len(gone)
	l.mu.Unlock()
	for name, out := range runs {
		if o, err := svc.GetRun(ctx, name); err != nil || string(o.Stdout.Head) != out {
			l.lose("run %s: %v", name, err)
		}
	}
	for id, name := range gone {
		if box, err := svc.Get(ctx, string(id)); brig.KindOf(err) != brig.NotFound {
			l.lose("sandbox %s was removed and is there: %+v, %v", name, box, err)
		}
	}
}
