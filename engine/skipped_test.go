package engine_test

import (
	"context"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// reachability records the engine's reports about the reachability of providers.
type reachability struct {
	*recordingObserver
	mu sync.Mutex
	up map[string]bool
}

func newReachability() *reachability {
	return &reachability{recordingObserver: &recordingObserver{refused: map[string]int{}, made: map[brig.CreationPurpose]int{}}, up: map[string]bool{}}
}

func (a *reachability) ProviderChecked(provider string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up[provider] = err == nil
}

func (a *reachability) hasState(provider string, up bool) func() bool {
	return func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		is, known := a.up[provider]
		return known && is == up
	}
}

// A provider that does not respond when the engine starts does not affect the
// sandboxes of other providers. The records of its own sandboxes remain, and the
// engine recovers the sandboxes when the provider responds. The engine reports that
// a provider is down even if the provider is not in use.
func TestDownProviderKeepsItsSandboxes(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", func(c *brig.ProviderConfig) {})
	for name, providerID := range map[string]string{"here": "", "there": "cloud"} {
		if _, err := h.Create(ctx, brig.Spec{Name: name, Placement: brig.Placement{Provider: providerID, Only: providerID != ""}}); err != nil {
			t.Fatal(err)
		}
	}
	cloud := s.newestCloud("cloud")
	h.Close()
	o := h.Options
	saw := newReachability()
	o.Observer = saw
	o.Drivers = []brig.Driver{brig.NewDriver(brig.Driver{Name: "cloud"}, cloudConfig{}, func(context.Context, brig.ProviderEnv, *cloudConfig) (brig.Provider, error) { return cloud, nil })}
	cloud.down.Store(true)
	e := engine.New(ctx, o)
	defer e.Close()
	if err := e.Recover(ctx); err != nil {
		t.Fatalf("recover: %v", err)
	}
	hello := brig.Command{Argv: []string{"echo", "hello"}}
	if res, err := e.Exec(ctx, "here", hello, brig.IO{}); err != nil || string(res.Stdout.Head) != "hello\n" {
		t.Errorf("a command in the sandbox of the other provider: %+v, %v", res, err)
	}
	if list, err := e.List(ctx, brig.ListOptions{}); err != nil || len(list.Sandboxes) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := e.Exec(ctx, "there", hello, brig.IO{}); brig.KindOf(err) != brig.Unavailable {
		t.Errorf("a command in the sandbox of the provider that is down: %v", err)
	}
	if err := e.Remove(ctx, "here"); err != nil {
		t.Errorf("remove: %v", err)
	}
	eventually(t, saw.hasState("cloud", false))
	cloud.down.Store(false)
	eventually(t, saw.hasState("cloud", true))
	eventually(t, func() bool {
		res, err := e.Exec(ctx, "there", hello, brig.IO{})
		return err == nil && string(res.Stdout.Head) == "hello\n"
	})
}

// A provider that cannot be opened is reported as down.
func TestUnopenableProviderIsReportedDown(t *testing.T) {
	saw := newReachability()
	h, _ := newCloudFixture(t, func(o *engine.Options) { o.Observer = saw })
	configure(t, h, "cloud", nil)
	eventually(t, saw.hasState("cloud", true))
	configure(t, h, "cloud", func(c *brig.ProviderConfig) { c.Config = []byte(`{"api_key":"refused-by-the-cloud"}`) })
	eventually(t, saw.hasState("cloud", false))
}

// The routing preference "cheapest" compares the prices that tenants are charged.
// The configured rates take precedence over the provider's terms.
func TestCheapestRoutingComparesRates(t *testing.T) {
	for name, c := range map[string]struct {
		rates map[string]brig.Rate
		terms brig.Terms
		want  string
		cost  bool
	}{
		"rates":            {map[string]brig.Rate{"fake": {PerSecond: 2}, "cloud": {PerSecond: 1}}, brig.Terms{}, "cloud", true},
		"the other way":    {map[string]brig.Rate{"fake": {PerSecond: 1}, "cloud": {PerSecond: 2}}, brig.Terms{}, "fake", true},
		"per call":         {map[string]brig.Rate{"fake": {PerCall: 1}, "cloud": {PerSecond: 2}}, brig.Terms{}, "fake", true},
		"memory":           {map[string]brig.Rate{"fake": {PerGiBSecond: 1000}, "cloud": {PerSecond: 1}}, brig.Terms{}, "cloud", true},
		"terms":            {map[string]brig.Rate{"fake": {PerCall: 1}}, brig.Terms{Second: 0.5}, "cloud", true},
		"rates over terms": {map[string]brig.Rate{"fake": {PerCall: 1}, "cloud": {PerCall: 2}}, brig.Terms{Second: 0.5}, "fake", true},
	} {
		saw := newReachability()
		h, _ := newCloudFixture(t, func(o *engine.Options) { o.Rates, o.Observer = c.rates, saw })
		configure(t, h, "cloud", func(p *brig.ProviderConfig) { p.Terms = &c.terms })
		o, err := runEcho(t, h, brig.Placement{Prefer: brig.PreferCheapest})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if o.Route.Provider != c.want || o.Route.Reason != "cheapest" {
			t.Errorf("%s: it ran at %+v, want %s", name, o.Route, c.want)
		}
		if ran := saw.lastExecution(t); (ran.Cost > 0) != c.cost || ran.Provider != c.want {
			t.Errorf("%s: it is charged as %+v", name, ran)
		}
	}
}
