package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/provider/fake"
)

// cloud is a provider of a second kind. It creates fake instances, and can be made
// unreachable.
type cloud struct {
	fake.Provider
	id                string
	config            cloudConfig
	down              atomic.Bool
	closed            atomic.Bool
	createdAfterClose atomic.Bool // an instance was created after the provider was closed
}

type cloudConfig struct {
	Key     string `json:"api_key" form:"required,secret"`
	Timeout int    `json:"timeout" min:"5" max:"300"`
	URL     string `json:"url" form:"destination"`
}

func (c *cloud) Capabilities() brig.Capabilities {
	out := c.Provider.Capabilities()
	out.Name = c.id
	return out
}

func (c *cloud) Check(context.Context) error {
	if c.down.Load() {
		return brig.Errorf(brig.ConnectionFailed, "the cloud does not answer")
	}
	return nil
}

func (c *cloud) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	if err := c.Check(ctx); err != nil {
		return nil, err
	}
	if c.closed.Load() {
		c.createdAfterClose.Store(true)
	}
	return c.Provider.Create(ctx, id, spec, lease)
}

func (c *cloud) Image(_ context.Context, ref string) (*brig.Image, error) {
	return &brig.Image{Digest: "cloud:" + ref, Names: []string{ref}}, nil
}

func (c *cloud) Close() error {
	c.closed.Store(true)
	return nil
}

// clouds holds the opened clouds by ID, the newest last.
type clouds struct {
	mu     sync.Mutex
	opened map[string][]*cloud
}

func (s *clouds) driver() brig.Driver {
	return brig.NewDriver(brig.Driver{Name: "cloud", Title: "Cloud"}, cloudConfig{Timeout: 30}, func(_ context.Context, env brig.ProviderEnv, config *cloudConfig) (brig.Provider, error) {
		if config.Key == "refused-by-the-cloud" {
			return nil, brig.Errorf(brig.ConnectionFailed, "the key is refused")
		}
		c := &cloud{id: env.ID, config: *config}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened[env.ID] = append(s.opened[env.ID], c)
		return c, nil
	})
}

// newestCloud returns the newest cloud with the given ID.
func (s *clouds) newestCloud(id string) *cloud {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.opened[id]
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// newCloudFixture returns a fixture with the cloud driver, and the clouds that
// it opens.
func newCloudFixture(t *testing.T, change func(*engine.Options)) (*fixture, *clouds) {
	t.Helper()
	s := &clouds{opened: map[string][]*cloud{}}
	h := newFixture(t, func(o *engine.Options) {
		o.Drivers = []brig.Driver{s.driver()}
		if change != nil {
			change(o)
		}
	})
	if err := h.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h, s
}

// eventually waits until background work makes f return true.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

const cloudKey = "sk-0123456789abcdef"

func configure(t *testing.T, h *fixture, id string, change func(*brig.ProviderConfig)) *brig.ProviderInfo {
	t.Helper()
	c := brig.ProviderConfig{ID: id, Config: json.RawMessage(`{"api_key":"` + cloudKey + `"}`)}
	if change != nil {
		change(&c)
	}
	p, err := h.ConfigureProvider(withRole(t, brig.Operator), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func runEcho(t *testing.T, h *fixture, place brig.Placement) (*brig.Outcome, error) {
	t.Helper()
	return h.Run(withRole(t, brig.Member), brig.Program{Command: []string{"echo", "hi"}, Placement: place}, brig.IO{})
}

// providerOf runs a program and returns the provider that ran it, with the reason
// and the failed attempts.
func providerOf(t *testing.T, h *fixture, place brig.Placement) string {
	t.Helper()
	o, err := runEcho(t, h, place)
	if err != nil {
		return brig.AsError(err).Kind.Code() + ": " + brig.AsError(err).Message
	}
	var tried []string
	for _, a := range o.Route.Attempts {
		tried = append(tried, a.Provider+" "+a.Code)
	}
	return strings.TrimSpace(fmt.Sprintf("%s (%s) %s", o.Route.Provider, o.Route.Reason, strings.Join(tried, ", ")))
}

// A change of a provider's address requires its key again, so that a caller without
// the key cannot have it sent elsewhere.
func TestProviderAddressChangeRequiresKey(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	first := s.newestCloud("cloud")
	moved := brig.ProviderConfig{ID: "cloud", Config: json.RawMessage(`{"api_key":"****cdef","url":"https://other.test"}`)}
	_, tested := h.TestProvider(ctx, moved)
	_, configured := h.ConfigureProvider(ctx, moved)
	moved.Test = true
	_, both := h.ConfigureProvider(ctx, moved)
	for what, err := range map[string]error{"a test": tested, "a change": configured, "a change with a test": both} {
		if e := brig.AsError(err); brig.KindOf(err) != brig.InvalidConfig || e.Field != "url" || !strings.Contains(e.Hint, "api_key again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s.newestCloud("cloud") != first {
		t.Errorf("a provider was opened with %+v", s.newestCloud("cloud").config)
	}
	// The control: with the key, the same change is possible.
	moved.Test, moved.Config = false, json.RawMessage(`{"api_key":"`+cloudKey+`","url":"https://other.test"}`)
	if _, err := h.ConfigureProvider(ctx, moved); err != nil || s.newestCloud("cloud").config.URL != "https://other.test" {
		t.Errorf("with the key: %v, %+v", err, s.newestCloud("cloud").config)
	}
}

func TestConfiguredProviderIsUsedOnceActive(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	if got := providerOf(t, h, brig.Placement{}); got != "fake (active)" {
		t.Error(got)
	}
	p := configure(t, h, "cloud", nil)
	if p.Active || !p.Up || string(p.Config) != `{"api_key":"****cdef"}` {
		t.Errorf("configured: %+v %s", p, p.Config)
	}
	if got := providerOf(t, h, brig.Placement{}); got != "fake (active)" {
		t.Errorf("it was not made active: %s", got)
	}
	if got := providerOf(t, h, brig.Placement{Provider: "cloud"}); got != "cloud (asked for)" {
		t.Error(got)
	}
	if err := h.ActivateProvider(ctx, "cloud"); err != nil {
		t.Fatal(err)
	}
	if got := providerOf(t, h, brig.Placement{}); got != "cloud (active)" {
		t.Error(got)
	}
	// Saving a masked value again keeps the secret.
	first := s.newestCloud("cloud")
	p = configure(t, h, "cloud", func(c *brig.ProviderConfig) {
		c.Config = json.RawMessage(`{"api_key":"****cdef","timeout":7}`)
		c.Terms = &brig.Terms{Region: "eu"}
	})
	if now := s.newestCloud("cloud"); now == first || now.config.Key != cloudKey || now.config.Timeout != 7 {
		t.Errorf("the change: %+v", now.config)
	}
	eventually(t, first.closed.Load) // it is closed when its last instance has ended
	if p.Terms.Region != "eu" {
		t.Errorf("terms %+v", p.Terms)
	}
	rows, err := h.store.Settings(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if strings.Contains(string(r.Value), cloudKey) {
			t.Errorf("%s has the secret: %s", r.Name, r.Value)
		}
	}
	for name, c := range map[string]struct {
		id, config string
		kind       brig.Kind
		fields     int
	}{
		"unknown":        {"mars", `{}`, brig.InvalidConfig, 0},
		"bad id":         {"../x", `{}`, brig.InvalidArgument, 0},
		"two bad fields": {"cloud@b", `{"timeout":1}`, brig.InvalidConfig, 2},
		"home":           {"fake", `{"a":1}`, brig.InvalidArgument, 0},
		"not an object":  {"cloud", `[]`, brig.InvalidConfig, 1},
	} {
		_, err := h.ConfigureProvider(ctx, brig.ProviderConfig{ID: c.id, Config: json.RawMessage(c.config)})
		if apiErr := brig.AsError(err); err == nil || apiErr.Kind != c.kind || len(apiErr.Fields) != c.fields || apiErr.Hint == "" {
			t.Errorf("%s: %+v", name, apiErr)
		}
	}
	// A provider that is active or in use cannot be removed.
	if err := h.RemoveProvider(ctx, "cloud"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("remove the active one: %v", err)
	}
	if _, err := h.Create(ctx, brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	if err := h.ActivateProvider(ctx, "fake"); err != nil {
		t.Fatal(err)
	}
	if err := h.RemoveProvider(ctx, "cloud"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("remove one that is used: %v", err)
	}
	if err := h.Remove(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	last := s.newestCloud("cloud")
	if err := h.RemoveProvider(ctx, "cloud"); err != nil {
		t.Error(err)
	}
	eventually(t, last.closed.Load)
	if got := providerOf(t, h, brig.Placement{Provider: "cloud", Only: true}); !strings.HasPrefix(got, "SB015") {
		t.Error(got)
	}
}

// A failed provider test does not change the settings. A successful test leaves no
// records and instances.
func TestFailedProviderTestKeepsSettings(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	_, err := h.ConfigureProvider(ctx, brig.ProviderConfig{ID: "cloud", Config: json.RawMessage(`{"api_key":"refused-by-the-cloud"}`), Test: true, Activate: true})
	if apiErr := brig.AsError(err); apiErr == nil || apiErr.Kind != brig.ConnectionFailed || !strings.Contains(apiErr.Message, "the key is refused") {
		t.Errorf("a test that fails: %v", err)
	}
	if rows, err := h.store.Settings(ctx); err != nil || len(rows) != 0 {
		t.Errorf("it left %v, %v", rows, err)
	}
	got, err := h.TestProvider(ctx, brig.ProviderConfig{ID: "cloud", Config: json.RawMessage(`{"api_key":"` + cloudKey + `"}`)})
	if err != nil || got.Latency == 0 {
		t.Fatalf("test: %+v, %v", got, err)
	}
	var left []*brig.Record
	if err := h.store.All(ctx, func(r *brig.Record) error { left = append(left, r); return nil }); err != nil || len(left) != 0 {
		t.Errorf("the test left %v, %v", left, err)
	}
	c := s.newestCloud("cloud")
	eventually(t, c.closed.Load)
	if len(c.Machines()) != 0 {
		t.Errorf("the test left machines %v", c.Machines())
	}
}

// No run fails while the active provider changes, and no run reaches a provider
// that was closed.
func TestActiveProviderChangesUnderLoad(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	var wg sync.WaitGroup
	var failed atomic.Int64
	seen := sync.Map{}
	done := make(chan struct{})
	runs := int64(testenv.Size(250, 1000))
	both := func() bool {
		_, fake := seen.Load("fake")
		_, cloud := seen.Load("cloud")
		return fake && cloud
	}
	var begun atomic.Int64
	begin := time.Now()
	for range 4 {
		wg.Go(func() {
			// On a busy host, all runs could end before the first change of the
			// provider.
			for begun.Add(1) <= runs || !both() && time.Since(begin) < 20*time.Second {
				o, err := runEcho(t, h, brig.Placement{})
				if err != nil {
					failed.Add(1)
					t.Error(err)
					continue
				}
				seen.Store(o.Route.Provider, true)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for i := 0; ; i++ {
		select {
		case <-done:
			if failed.Load() != 0 {
				t.Errorf("%d runs failed", failed.Load())
			}
			for _, id := range []string{"fake", "cloud"} {
				if _, ok := seen.Load(id); !ok {
					t.Errorf("no run was at %s", id)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range s.opened["cloud"] {
				if c.createdAfterClose.Load() {
					t.Error("a machine was made at a provider that was closed")
				}
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
		// Change the provider's configuration, and then the active provider.
		configure(t, h, "cloud", func(c *brig.ProviderConfig) {
			c.Config = json.RawMessage(fmt.Sprintf(`{"api_key":"%s","timeout":%d}`, cloudKey, 5+i%100))
		})
		if err := h.ActivateProvider(ctx, []string{"cloud", "fake"}[i%2]); err != nil {
			t.Error(err)
		}
	}
}

// A server applies settings that another server or an operator wrote to the store
// within a second.
func TestServersReloadChangedSettings(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	rows := []brig.Setting{
		{Name: brig.SettingConfig("cloud"), Type: "json", Value: []byte(`{"api_key":"` + cloudKey + `"}`), Updated: time.Now()},
		{Name: brig.SettingProvider, Type: "string", Value: []byte("cloud"), Updated: time.Now()},
	}
	if err := h.store.PutSettings(ctx, rows); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return providerOf(t, h, brig.Placement{}) == "cloud (active)" })
	if s.newestCloud("cloud").config.Key != cloudKey {
		t.Error("the key did not come")
	}
	// A provider that cannot be opened reports the reason, and does not affect
	// others.
	rows[0].Value, rows[0].Updated = []byte(`{"api_key":"refused-by-the-cloud"}`), time.Now()
	if err := h.store.PutSettings(ctx, rows[:1]); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(providerOf(t, h, brig.Placement{}), "the key is refused") })
	if got := providerOf(t, h, brig.Placement{Provider: "fake"}); got != "fake (asked for)" {
		t.Error(got)
	}
	list, err := h.Providers(ctx)
	if err != nil || len(list) != 2 || list[1].Up || !strings.Contains(list[1].Why, "refused") {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestRunWithoutProviderFails(t *testing.T) {
	h, _ := newCloudFixture(t, func(o *engine.Options) { o.Active = engine.NoProvider })
	_, err := runEcho(t, h, brig.Placement{})
	if apiErr := brig.AsError(err); apiErr == nil || apiErr.Kind != brig.NotInitialized || apiErr.Kind.Code() != "SB001" || apiErr.Hint == "" {
		t.Errorf("%+v", apiErr)
	}
	if got := providerOf(t, h, brig.Placement{Provider: "fake"}); got != "fake (asked for)" {
		t.Error(got)
	}
}

// A program is never routed to a provider that cannot enforce its requirements.
func TestRoutingSkipsUnenforcingProviders(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	s.newestCloud("cloud").NoUplink = true
	if err := h.SetRouting(ctx, "", brig.Routing{Order: []string{"cloud", "fake"}}); err != nil {
		t.Fatal(err)
	}
	rules := brig.Egress{Rules: []brig.EgressRule{{Host: "api.example.com"}}}
	o, err := h.Run(ctx, brig.Program{Command: []string{"echo"}, Egress: rules}, brig.IO{})
	if err != nil || o.Route.Provider != "fake" {
		t.Fatalf("%+v, %v", o, err)
	}
	_, err = h.Run(ctx, brig.Program{Command: []string{"echo"}, Egress: rules, Placement: brig.Placement{Provider: "cloud", Only: true}}, brig.IO{})
	if apiErr := brig.AsError(err); apiErr == nil || apiErr.Kind != brig.FailedPrecondition || apiErr.Field != "egress" {
		t.Errorf("%+v", apiErr)
	}
}

// A new server recovers the sandboxes of a configured provider. A sandbox whose
// provider is no longer configured can still be removed.
func TestRecoverConfiguredProvider(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", func(c *brig.ProviderConfig) { c.Activate = true })
	for _, name := range []string{"one", "two"} {
		if _, err := h.Create(ctx, brig.Spec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	old := s.newestCloud("cloud")
	h.Close()
	o := h.Options
	again := brig.NewDriver(brig.Driver{Name: "cloud"}, cloudConfig{}, func(context.Context, brig.ProviderEnv, *cloudConfig) (brig.Provider, error) { return old, nil })
	o.Drivers = []brig.Driver{again}
	e := engine.New(ctx, o)
	defer e.Close()
	if err := e.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	res, err := e.Exec(ctx, "one", brig.Command{Argv: []string{"echo", "still"}}, brig.IO{})
	if err != nil || string(res.Stdout.Head) != "still\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	e.Close()
	if err := o.Store.PutSettings(ctx, []brig.Setting{{Name: brig.SettingConfig("cloud")}, {Name: brig.SettingProvider}}); err != nil {
		t.Fatal(err)
	}
	e = engine.New(ctx, o)
	defer e.Close()
	if err := e.Recover(ctx); err != nil {
		t.Errorf("recover without the provider: %v", err)
	}
	if _, err := e.Exec(ctx, "two", brig.Command{Argv: []string{"true"}}, brig.IO{}); brig.KindOf(err) != brig.Unavailable || !strings.Contains(err.Error(), "not configured any more") {
		t.Errorf("a command in it: %v", err)
	}
	if got, err := e.Get(ctx, "two"); err != nil || got.Provider != "cloud" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := e.Remove(ctx, "two"); err != nil {
		t.Errorf("forget it: %v", err)
	}
}

// runner is a provider without instances, which only runs programs.
type runner struct {
	brig.Provider
	fail func(n int64) error
	ran  atomic.Int64
}

func (r *runner) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: "far", Isolation: "theirs", RunsOnly: true}
}

func (r *runner) Sweep(context.Context, map[brig.ID]bool) (int, error) { return 0, nil }

func (r *runner) Run(_ context.Context, _ brig.ID, p brig.Program, sio brig.IO) (*brig.Outcome, error) {
	if err := r.fail(r.ran.Add(1)); err != nil {
		return nil, err
	}
	return &brig.Outcome{Result: brig.Result{Done: true, Stdout: brig.Output{Head: []byte(fmt.Sprint(p.Command, p.Timeout > 0, p.Limits.Memory > 0))}}}, nil
}

func TestRunsOnlyProviderRejectsSandboxes(t *testing.T) {
	far := &runner{fail: func(int64) error { return nil }}
	h, _ := newCloudFixture(t, func(o *engine.Options) {
		o.Drivers = append(o.Drivers, brig.NewDriver(brig.Driver{Name: "far"}, struct{}{}, func(context.Context, brig.ProviderEnv, *struct{}) (brig.Provider, error) { return far, nil }))
	})
	ctx := withRole(t, brig.Operator)
	if _, err := h.ConfigureProvider(ctx, brig.ProviderConfig{ID: "far", Activate: true}); err != nil {
		t.Fatal(err)
	}
	// A provider test runs a program at the provider, and does not count as an
	// execution.
	if tried, err := h.TestProvider(ctx, brig.ProviderConfig{ID: "far"}); err != nil || far.ran.Load() != 1 {
		t.Errorf("a test: %+v, %v, %d programs", tried, err, far.ran.Load())
	}
	o, err := runEcho(t, h, brig.Placement{})
	if err != nil || string(o.Stdout.Head) != "[echo hi] true true" || o.Route.Provider != "far" || o.Sandbox == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	if kept, err := h.GetRun(ctx, o.Sandbox); err != nil || kept.Route.Provider != "far" {
		t.Errorf("its outcome: %+v, %v", kept, err)
	}
	if test, err := h.TestProvider(ctx, brig.ProviderConfig{ID: "far"}); err != nil || test.Latency == 0 || test.Code != "" {
		t.Errorf("test: %+v, %v", test, err)
	}
	if _, err := h.Create(ctx, brig.Spec{}); brig.KindOf(err) != brig.FailedPrecondition || brig.AsError(err).Field != "placement" {
		t.Errorf("a sandbox that stays: %v", err)
	}
	if err := h.SetRouting(ctx, "", brig.Routing{Order: []string{"far", "fake"}}); err != nil {
		t.Fatal(err)
	}
	if box, err := h.Create(ctx, brig.Spec{}); err != nil || box.Provider != "fake" {
		t.Errorf("a sandbox that stays goes to who has them: %+v, %v", box, err)
	}
	// A program that may have started is retried only if it cannot have had effects
	// outside its sandbox. A program with an input stream is not retried, because
	// the stream can be read only once.
	began := brig.WithRetry(brig.Errorf(brig.Unavailable, "it went away"), brig.RetryContained)
	far.fail = func(int64) error { return began }
	if got := providerOf(t, h, brig.Placement{}); got != "fake (fallback: far failed) far SB009" {
		t.Error(got)
	}
	far.fail = func(int64) error { return nil }
	eventually(t, func() bool { return strings.HasPrefix(providerOf(t, h, brig.Placement{}), "far") })
	far.fail = func(int64) error { return began }
	_, err = h.Run(ctx, brig.Program{Command: []string{"cat"}, Placement: brig.Placement{Provider: "far"}}, brig.IO{Stdin: strings.NewReader("once")})
	if !errors.Is(err, began) && brig.KindOf(err) != brig.Unavailable {
		t.Errorf("input can be given once: %v", err)
	}
}

// A key rotation encrypts a provider's secret with the new key.
func TestProviderSecretsRotate(t *testing.T) {
	h, s := newCloudFixture(t, nil)
	ctx := withRole(t, brig.Operator)
	configure(t, h, "cloud", nil)
	sealedNow := func() string {
		rows, err := h.store.Settings(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return string(rows[0].Value)
	}
	before := sealedNow()
	if _, err := h.RotateKey(ctx); err != nil {
		t.Fatal(err)
	}
	if after := sealedNow(); after == before || !strings.Contains(after, h.Options.Keys.Primary()) {
		t.Errorf("before %s\nafter %s", before, after)
	}
	first := s.newestCloud("cloud")
	eventually(t, func() bool { return s.newestCloud("cloud") != first })
	if s.newestCloud("cloud").config.Key != cloudKey {
		t.Error("the key did not survive")
	}
}
