package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/mem"
)

// recordingObserver is an observer that records its calls.
type recordingObserver struct {
	mu         sync.Mutex // guards the fields below
	ran        []brig.ExecutionReport
	refused    map[string]int
	made       map[brig.CreationPurpose]int
	endReasons []brig.ExitReason
	tried      []error
}

func (s *recordingObserver) ExecutionEnded(r brig.ExecutionReport) {
	s.note(func() { s.ran = append(s.ran, r) })
}
func (s *recordingObserver) Refused(op string, kind brig.Kind) {
	s.note(func() { s.refused[op+" "+string(kind)]++ })
}
func (s *recordingObserver) InstanceCreated(m brig.CreationReport) {
	s.note(func() { s.made[m.For]++ })
}
func (s *recordingObserver) SandboxEnded(_ string, reason brig.ExitReason) {
	s.note(func() { s.endReasons = append(s.endReasons, reason) })
}
func (s *recordingObserver) Restarted(string, string)      {}
func (s *recordingObserver) ProviderChecked(string, error) {}
func (s *recordingObserver) ProviderTested(_ string, _ time.Duration, err error) {
	s.note(func() { s.tried = append(s.tried, err) })
}

func (s *recordingObserver) note(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *recordingObserver) lastExecution(t *testing.T) brig.ExecutionReport {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ran) == 0 {
		t.Fatal("nothing was told")
	}
	return s.ran[len(s.ran)-1]
}

// newObservedEngine returns an engine with an observer, on a fake provider.
func newObservedEngine(t *testing.T, change func(*engine.Options)) (*engine.Engine, *recordingObserver, context.Context) {
	t.Helper()
	s := &recordingObserver{refused: map[string]int{}, made: map[brig.CreationPurpose]int{}}
	store := mem.New()
	if err := store.PutTenant(t.Context(), &brig.Tenant{Name: "acme", Quota: brig.Quota{ExecutionsPerDay: 6}}); err != nil {
		t.Fatal(err)
	}
	o := engine.Options{
		Store: store, Provider: &fake.Provider{}, Images: &images{}, LimitRange: brig.DefaultLimitRange(), Observer: s,
		Rates: map[string]brig.Rate{fake.Name: {PerCall: 1, PerGiBSecond: 1e9}},
	}
	change(&o)
	e := engine.New(t.Context(), o)
	t.Cleanup(e.Close)
	return e, s, brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Operator})
}

// The observer receives each execution once, with its outcome and its cost, before
// the caller receives the result. This includes executions that never started.
func TestObserverGetsEachExecutionOnce(t *testing.T) {
	e, s, ctx := newObservedEngine(t, func(*engine.Options) {})
	if _, err := e.Run(ctx, brig.Program{Command: []string{"echo", "hi"}, Labels: map[string]string{"team": "a"}}, brig.IO{}); err != nil {
		t.Fatal(err)
	}
	r := s.lastExecution(t)
	if r.Status != brig.RunSuccess || r.Kind != "" || r.Provider != fake.Name || r.Op != "run" || r.Tenant != "acme" || r.Language != "command" || r.Sandbox == "" {
		t.Errorf("told %+v", r)
	}
	limits := brig.DefaultLimitRange().Default
	if want := (brig.Rate{PerCall: 1, PerGiBSecond: 1e9}).Cost(1, r.Duration, limits.Memory); r.Cost != want || r.Cost < 1 {
		t.Errorf("it cost %v, want %v", r.Cost, want)
	}
	for _, label := range []string{"", "team"} {
		lines, err := e.TenantUsage(ctx, brig.UsageQuery{Label: label})
		if err != nil || len(lines) != 1 || lines[0].Cost != r.Cost {
			t.Errorf("usage by %q is %+v: %v", label, lines, err)
		}
	}
	if _, err := e.Run(ctx, brig.Program{Command: []string{"exit", "7"}}, brig.IO{}); err != nil {
		t.Fatal(err)
	}
	if r := s.lastExecution(t); r.Status != brig.RunError || r.ExitCode != 7 || r.Kind != "" {
		t.Errorf("told %+v", r)
	}
	if _, err := e.Run(ctx, brig.Program{Command: []string{"oom"}}, brig.IO{}); err != nil {
		t.Fatal(err)
	}
	if r := s.lastExecution(t); r.Status != brig.RunOutOfMemory || r.Kind != brig.OutOfMemory {
		t.Errorf("told %+v", r)
	}
	if _, err := e.Run(ctx, brig.Program{Language: "klingon", Code: "x"}, brig.IO{}); err == nil {
		t.Fatal("there is Klingon")
	}
	if r := s.lastExecution(t); r.Status != brig.RunRefused || r.Kind != brig.InvalidArgument || r.Language != "other" || r.Provider != brig.NoProvider || r.Cost != 0 || r.ExitCode != -1 {
		t.Errorf("told %+v", r)
	}
	if _, err := e.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	if l := e.Load(); l.Sandboxes[fake.Name] != 1 || l.Executions[fake.Name] != 0 {
		t.Errorf("what goes on: %+v", l)
	}
	p, err := e.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"echo", "hi"}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		if s.lastExecution(t).Op == "process.start" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if r := s.lastExecution(t); r.Op != "process.start" || r.Status != brig.RunSuccess || r.Cost < 1 || p.PID == 0 {
		t.Errorf("told of a process %+v", r)
	}
	if _, err := e.Kill(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endReasons) != 1 || s.endReasons[0] != brig.Killed || s.made[brig.MadeCaller] != 4 || s.refused["run invalid_argument"] != 1 || len(s.ran) != 5 {
		t.Errorf("gone %v, made %v, refused %v, %d executions", s.endReasons, s.made, s.refused, len(s.ran))
	}
	if l := e.Load(); l.Sandboxes[fake.Name] != 0 {
		t.Errorf("what goes on after all: %+v", l)
	}
}

// The end of a run's ephemeral sandbox is not counted as the end of a sandbox, even
// if its record is removed late.
func TestRunEndsAreNotCountedAsSandboxEnds(t *testing.T) {
	p := &fake.Provider{}
	e, s, ctx := newObservedEngine(t, func(o *engine.Options) { o.Provider = p })
	_, err := e.Run(ctx, brig.Program{Command: []string{"echo", "hi"}}, brig.IO{Started: func(string) {
		for _, id := range p.Machines() {
			in, err := p.Recover(ctx, id, brig.Handle{})
			if err == nil {
				err = in.Stop(ctx, 0, brig.OutOfMem)
			}
			if err != nil {
				t.Error(err)
			}
		}
		time.Sleep(100 * time.Millisecond) // wait until the engine detects the end
	}})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endReasons) > 0 {
		t.Errorf("the run answered %v, and ends are counted: %v", err, s.endReasons)
	}
}

// failingProvider is a provider that fails to create instances.
type failingProvider struct{ fake.Provider }

func (*failingProvider) Create(context.Context, brig.ID, brig.Spec, time.Time) (brig.Instance, error) {
	return nil, brig.Errorf(brig.CreationFailed, "no")
}

// Health checks distinguish a working provider from a broken one, and leave no
// instances.
func TestHealthChecksDetectBrokenProvider(t *testing.T) {
	good := &fake.Provider{}
	for name, c := range map[string]struct {
		provider brig.Provider
		fails    bool
	}{"good": {good, false}, "lame": {&failingProvider{}, true}} {
		e, s, _ := newObservedEngine(t, func(o *engine.Options) { o.Provider, o.HealthCheckInterval = c.provider, 20*time.Millisecond })
		if err := e.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		var tried []error
		for range 6000 {
			s.mu.Lock()
			tried = s.tried
			s.mu.Unlock()
			if len(tried) > 1 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if len(tried) < 2 || (tried[0] != nil) != c.fails {
			t.Errorf("%s: trials ended with %v", name, tried)
		}
		e.Close()
		if len(s.ran) != 0 {
			t.Errorf("%s: a trial is told as an execution", name)
		}
	}
	if machines := good.Machines(); len(machines) != 0 {
		t.Errorf("trials left %v", machines)
	}
}

// The next server counts the end of a sandbox whose instance died while no server
// was running.
func TestEndWithoutServerIsCounted(t *testing.T) {
	s := &recordingObserver{refused: map[string]int{}, made: map[brig.CreationPurpose]int{}}
	h := newFixture(t, nil)
	h.createWithNoteFile(t, withRole(t, brig.Member), brig.Spec{Name: "one"})
	h.Close()
	next := engine.New(t.Context(), engine.Options{
		Store: h.store, Provider: &fake.Provider{}, Images: images{}, LimitRange: brig.DefaultLimitRange(), Observer: s,
	})
	defer next.Close()
	if err := next.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if box, err := next.Get(withRole(t, brig.Member), "one"); err != nil || box.State != brig.Ended || len(s.endReasons) != 1 || s.endReasons[0] != brig.Crashed {
		t.Errorf("%+v, %v; counted: %v", box, err, s.endReasons)
	}
}
