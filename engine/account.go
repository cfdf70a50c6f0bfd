package engine

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// account is what the server knows of one tenant: what it may use, and what it
// uses. Everything is decided in memory, under one lock, and counted from the
// records when a server starts; only what was used up is written down, every
// few seconds (usage.go).
type account struct {
	now func() time.Time

	mu         sync.Mutex // guards the fields below
	tenant     brig.Tenant
	bounds     brig.Bounds // of sandboxes, with the tenant's ceilings
	closed     bool        // the tenant is being removed
	sandboxes  int
	executions int
	storage    int64
	open       map[*seat]bool
	today      string
	spent      brig.Spent              // today
	unwritten  map[usageKey]brig.Spent // since the last flush
	labels     map[usageKey]bool       // those that today has lines of
	buckets    map[string]*bucket      // of calls: "" is the tenant's, others are keys'
}

// usageKey names a line of a tenant's usage.
type usageKey struct{ day, label, value string }

// maxUsageLabels is how many labels of a tenant usage is told apart by, on one
// day: what callers choose must not fill the disk. The sums have everything.
const maxUsageLabels = 1000

// seat is what one sandbox or one execution takes up until it ends.
type seat struct {
	a      *account
	exec   bool
	cpus   float64
	gib    float64
	disk   int64
	labels map[string]string
	since  time.Time // until when it is accounted for
	// stop ends an execution before its time; nil where nobody has said how.
	// over is why it was.
	stop func(why error)
	over error
	// ending says that a sandbox is being ended for its tenant's time. Of all
	// fields this one is guarded by Engine.mu.
	ending bool
}

// account finds the account of a tenant that there is.
func (e *Engine) account(ctx context.Context, tenant string) (*account, error) {
	if a, ok := e.accounts.Load(tenant); ok {
		return a.(*account), nil
	}
	e.tenancy.Lock()
	defer e.tenancy.Unlock()
	return e.loadAccount(ctx, tenant)
}

// loadAccount reads what there is to know. The caller holds e.tenancy.
func (e *Engine) loadAccount(ctx context.Context, tenant string) (*account, error) {
	if a, ok := e.accounts.Load(tenant); ok {
		return a.(*account), nil
	}
	t, err := e.Store.GetTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	today := brig.DayOf(e.Now())
	lines, err := e.Store.Usage(ctx, tenant, today, today)
	if err != nil {
		return nil, err
	}
	a := &account{
		now: e.Now, tenant: *t, bounds: e.Bounds.Within(t.Ceilings), open: map[*seat]bool{}, today: today,
		unwritten: map[usageKey]brig.Spent{}, labels: map[usageKey]bool{}, buckets: map[string]*bucket{},
	}
	for _, l := range lines {
		if l.Label == "" {
			a.spent = l.Spent
		} else {
			a.labels[usageKey{l.Day, l.Label, l.Value}] = true
		}
	}
	e.accounts.Store(tenant, a)
	return a, nil
}

// lodge takes a seat for one more sandbox, if the quota has one.
func (a *account) lodge(spec brig.Spec) (*seat, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	q := a.tenant.Quota
	switch {
	case a.closed:
		return nil, errRemoved(a.tenant.Name)
	case q.Sandboxes > 0 && a.sandboxes >= q.Sandboxes:
		return nil, brig.OverQuota("sandboxes", fmt.Sprintf("%d at once", q.Sandboxes), time.Second)
	case q.Storage > 0 && a.storage+spec.Limits.Disk > q.Storage:
		return nil, brig.OverQuota("storage", brig.FormatBytes(q.Storage), time.Second)
	}
	a.catchUp()
	if err := q.FitsReserved(a.spent, a.now()); err != nil {
		return nil, err
	}
	return a.take(spec), nil
}

// keep is lodge of a sandbox that there is already, whatever the quota says.
func (a *account) keep(spec brig.Spec) *seat {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.take(spec)
}

// take makes a seat. The caller holds a.mu.
func (a *account) take(spec brig.Spec) *seat {
	a.sandboxes++
	a.storage += spec.Limits.Disk
	return a.enter(&seat{
		cpus: spec.Limits.CPUs, gib: float64(spec.Limits.Memory) / brig.GiB, disk: spec.Limits.Disk, labels: spec.Labels,
	})
}

func (a *account) enter(p *seat) *seat {
	p.a, p.since = a, a.now()
	a.open[p] = true
	return p
}

// begin takes a seat for one more execution, and counts it.
func (a *account) begin(labels map[string]string) (*seat, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	q := a.tenant.Quota
	if a.closed {
		return nil, errRemoved(a.tenant.Name)
	}
	if q.Executions > 0 && a.executions >= q.Executions {
		return nil, brig.OverQuota("executions", fmt.Sprintf("%d at once", q.Executions), time.Second)
	}
	a.catchUp()
	if err := q.FitsToday(a.spent, a.now()); err != nil {
		return nil, err
	}
	a.executions++
	a.add(labels, brig.Spent{Executions: 1})
	return a.enter(&seat{exec: true, labels: labels}), nil
}

// goOn is begin of an execution that an earlier server began and counted.
func (a *account) goOn(labels map[string]string) *seat {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.executions++
	return a.enter(&seat{exec: true, labels: labels})
}

// end gives a seat back. Further calls do nothing.
func (p *seat) end() { p.leave(false) }

// undo gives the seat of an execution back that never began: it does not
// count.
func (p *seat) undo() { p.leave(true) }

func (p *seat) leave(undone bool) {
	if p == nil {
		return
	}
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open[p] {
		return
	}
	delete(a.open, p)
	a.turn()
	a.accrue(p, a.now())
	switch {
	case !p.exec:
		a.sandboxes--
		a.storage -= p.disk
	case undone:
		a.executions--
		a.add(p.labels, brig.Spent{Executions: -1})
	default:
		a.executions--
	}
}

// charge adds what an execution costs.
func (a *account) charge(labels map[string]string, cost float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	a.add(labels, brig.Spent{Cost: cost})
}

// account is whose seat it is, nil for none.
func (p *seat) account() *account {
	if p == nil {
		return nil
	}
	return p.a
}

// accrue adds what a seat has used since it was last asked. The caller holds
// a.mu.
func (a *account) accrue(p *seat, now time.Time) {
	d := now.Sub(p.since)
	if p.since = now; d <= 0 {
		return // the clock was set back
	}
	if p.exec {
		a.add(p.labels, brig.Spent{ExecutionTime: d})
		return
	}
	a.add(p.labels, brig.Spent{CPUTime: time.Duration(p.cpus * float64(d)), Memory: p.gib * d.Seconds()})
}

// add notes what was used. The caller holds a.mu.
func (a *account) add(labels map[string]string, s brig.Spent) {
	a.spent = a.spent.Add(s)
	sum := usageKey{day: a.today}
	a.unwritten[sum] = a.unwritten[sum].Add(s)
	for k, v := range labels {
		line := usageKey{a.today, k, v}
		if !a.labels[line] {
			if len(a.labels) >= maxUsageLabels {
				continue
			}
			a.labels[line] = true
		}
		a.unwritten[line] = a.unwritten[line].Add(s)
	}
}

// catchUp accounts for everything until now, if a quota depends on it. The
// caller holds a.mu.
func (a *account) catchUp() {
	if !a.tenant.Quota.OfTime() {
		return
	}
	now := a.now()
	for p := range a.open {
		a.accrue(p, now)
	}
}

// turn begins a new day when there is one. The caller holds a.mu.
func (a *account) turn() {
	if day := brig.DayOf(a.now()); day != a.today {
		a.today, a.spent = day, brig.Spent{}
		clear(a.labels)
	}
}

// flush returns what is to be written, and forgets it.
func (a *account) flush() (lines []brig.UsageLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	a.turn()
	for p := range a.open {
		a.accrue(p, now)
	}
	for k, s := range a.unwritten {
		if s != (brig.Spent{}) {
			lines = append(lines, brig.UsageLine{Tenant: a.tenant.Name, Day: k.day, Label: k.label, Value: k.value, Spent: s})
		}
	}
	clear(a.unwritten)
	return lines
}

// restore takes back what could not be written.
func (a *account) restore(lines []brig.UsageLine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range lines {
		k := usageKey{l.Day, l.Label, l.Value}
		a.unwritten[k] = a.unwritten[k].Add(l.Spent)
	}
}

// terms returns what a call of the tenant's is bound by.
func (a *account) terms() (brig.Bounds, brig.Ceilings) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bounds, a.tenant.Ceilings
}

// storesAtMost is how many bytes versions of workspaces may take, 0 for any.
func (a *account) storesAtMost() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tenant.Quota.Workspaces
}

// change gives the tenant another quota and other ceilings.
func (a *account) change(t brig.Tenant, bounds brig.Bounds) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tenant, a.bounds = t, bounds
	clear(a.buckets)
}

// close lets nothing begin any more, unless something goes on.
func (a *account) close() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = a.sandboxes == 0 && a.executions == 0
	return a.closed
}

func (a *account) reopen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = false
}

func errRemoved(tenant string) error {
	return brig.Errorf(brig.PermissionDenied, "the tenant %q is being removed", tenant)
}

// house remembers the seat of a sandbox that has a machine.
func (e *Engine) house(id brig.ID, p *seat) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seats[id] = p
}

// houseKept is house for a sandbox that an earlier server made.
func (e *Engine) houseKept(ctx context.Context, r *brig.Record) error {
	a, err := e.account(ctx, r.Tenant)
	if err != nil {
		return err
	}
	spec := r.Spec
	spec.Labels = maps.Clone(spec.Labels)
	e.house(r.ID, a.keep(spec))
	return nil
}
