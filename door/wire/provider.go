package wire

import (
	"encoding/json"

	"github.com/brig-run/brig"
)

// Placement says where a request wants to be.
type Placement struct {
	Provider string   `json:"provider,omitempty" doc:"a provider's id, which is tried first"`
	Only     bool     `json:"only,omitempty" doc:"no other is tried"`
	Prefer   string   `json:"prefer,omitempty" doc:"cheapest or region, in the stead of the order of the tenant's routing"`
	Regions  []string `json:"regions,omitempty" doc:"the nearest first"`
}

// ToPlacement returns the noun.
func ToPlacement(p *Placement) brig.Placement {
	if p == nil {
		return brig.Placement{}
	}
	return brig.Placement{Provider: p.Provider, Only: p.Only, Prefer: brig.Preference(p.Prefer), Regions: p.Regions}
}

// FromPlacement is the inverse of ToPlacement.
func FromPlacement(p brig.Placement) *Placement {
	if p.IsZero() {
		return nil
	}
	return &Placement{Provider: p.Provider, Only: p.Only, Prefer: string(p.Prefer), Regions: p.Regions}
}

// Route is where something was made, and why there.
type Route struct {
	Provider string    `json:"provider"`
	Reason   string    `json:"reason" doc:"for example active, asked for, cheapest, or fallback: e2b is unavailable"`
	Attempts []Attempt `json:"attempts,omitempty" doc:"what was tried before, in vain"`
}

// Attempt is a provider that was tried in vain.
type Attempt struct {
	Provider string  `json:"provider"`
	Code     string  `json:"code"`
	Message  string  `json:"message"`
	TookMS   float64 `json:"took_ms"`
}

// FromRoute returns the form of a route, nil of none.
func FromRoute(r brig.Route) *Route {
	if r.Provider == "" {
		return nil
	}
	out := &Route{Provider: r.Provider, Reason: r.Reason}
	for _, a := range r.Attempts {
		out.Attempts = append(out.Attempts, Attempt{a.Provider, a.Code, a.Message, Millis(a.Took)})
	}
	return out
}

// ToRoute is the inverse of FromRoute.
func ToRoute(r *Route) brig.Route {
	if r == nil {
		return brig.Route{}
	}
	out := brig.Route{Provider: r.Provider, Reason: r.Reason}
	for _, a := range r.Attempts {
		out.Attempts = append(out.Attempts, brig.Attempt{Provider: a.Provider, Code: a.Code, Message: a.Message, Took: FromMillis(a.TookMS)})
	}
	return out
}

// Terms are how a provider is used.
type Terms struct {
	Region string  `json:"region,omitempty" doc:"where it is"`
	Max    int     `json:"max,omitempty" doc:"sandboxes and programs at once before it is full; 0 is no bound but its own"`
	Second float64 `json:"second,omitempty" doc:"what one second of a sandbox costs there"`
}

// ProviderRequest says how a provider is reached and used.
type ProviderRequest struct {
	Config   Object `json:"config,omitempty" doc:"an object with the fields of its schema; left out it stays as it is, and so does a secret that is given as it is shown"`
	Terms    *Terms `json:"terms,omitempty" doc:"left out they stay as they are"`
	Activate bool   `json:"activate,omitempty" doc:"make it the active one"`
	Test     bool   `json:"test,omitempty" doc:"run a program there first, and change nothing if that fails"`
}

// Noun returns the noun, of the provider of an id.
func (p ProviderRequest) Noun(id string) brig.ProviderConfig {
	out := brig.ProviderConfig{ID: id, Config: json.RawMessage(p.Config), Activate: p.Activate, Test: p.Test}
	if p.Terms != nil {
		t := brig.Terms(*p.Terms)
		out.Terms = &t
	}
	return out
}

// FromProviderConfig is the inverse of Noun.
func FromProviderConfig(c brig.ProviderConfig) ProviderRequest {
	out := ProviderRequest{Config: Object(c.Config), Activate: c.Activate, Test: c.Test}
	if c.Terms != nil {
		t := Terms(*c.Terms)
		out.Terms = &t
	}
	return out
}

// TestRequest asks for a test of a provider.
type TestRequest struct {
	Config Object `json:"config,omitempty" doc:"as in a change; left out it is what is configured"`
}

// Provider is what an operator may know of a provider.
type Provider struct {
	ID         string             `json:"id"`
	Driver     string             `json:"driver" doc:"its kind"`
	Title      string             `json:"title"`
	Doc        string             `json:"description"`
	Tags       []string           `json:"tags" nullable:"false"`
	Languages  []string           `json:"languages" nullable:"false"`
	Fields     []brig.ConfigField `json:"fields" nullable:"false" doc:"those of its configuration, in their order"`
	Configured bool               `json:"configured"`
	Active     bool               `json:"active"`
	Home       bool               `json:"home,omitempty" doc:"it is this machine, which is always there"`
	Config     Object             `json:"config,omitempty" doc:"secrets are shown as their last four characters"`
	Terms      Terms              `json:"terms"`
	Up         bool               `json:"up" doc:"it answered when it was last asked"`
	Why        string             `json:"why,omitempty" doc:"why it did not"`
	Users      int                `json:"users" doc:"sandboxes and programs that are there now"`
	RunsOnly   bool               `json:"runs_only,omitempty" doc:"it runs programs and has no sandboxes that stay"`
	Provides   *Capabilities      `json:"capabilities,omitempty"`
}

// Providers lists providers.
type Providers struct {
	Providers []Provider `json:"providers" nullable:"false"`
}

// FromProvider returns the form of a provider.
func FromProvider(p *brig.ProviderInfo) Provider {
	out := Provider{
		ID: p.ID, Driver: p.Driver, Title: p.Title, Doc: p.Doc, Tags: append([]string{}, p.Tags...), Languages: []string{},
		Fields: append([]brig.ConfigField{}, p.Fields...), Configured: p.Configured, Active: p.Active, Home: p.Home,
		Config: Object(p.Config), Terms: Terms(p.Terms), Up: p.Up, Why: p.Why, Users: p.Users, RunsOnly: p.Capabilities.RunsOnly,
	}
	for _, l := range p.Languages {
		out.Languages = append(out.Languages, string(l))
	}
	if p.Capabilities.Name != "" {
		c := FromCapabilities(&p.Capabilities)
		out.Provides = &c
	}
	return out
}

// Noun is the inverse of FromProvider.
func (p *Provider) Noun() *brig.ProviderInfo {
	out := &brig.ProviderInfo{
		ID: p.ID, Driver: p.Driver, Title: p.Title, Doc: p.Doc, Tags: p.Tags, Fields: p.Fields, Configured: p.Configured,
		Active: p.Active, Home: p.Home, Config: json.RawMessage(p.Config), Terms: brig.Terms(p.Terms), Up: p.Up, Why: p.Why, Users: p.Users,
	}
	for _, l := range p.Languages {
		out.Languages = append(out.Languages, brig.Language(l))
	}
	if p.Provides != nil {
		out.Capabilities = *p.Provides.Noun()
		out.Capabilities.RunsOnly = p.RunsOnly
	}
	return out
}

// ProviderTest is how a provider ran a program.
type ProviderTest struct {
	OK        bool    `json:"success"`
	Message   string  `json:"message"`
	Code      string  `json:"code,omitempty"`
	Hint      string  `json:"hint,omitempty"`
	LatencyMS float64 `json:"latency_ms"`
	ExitCode  int     `json:"exit_code"`
	Stdout    string  `json:"stdout"`
	Stderr    string  `json:"stderr"`
}

// FromTest returns the form of a test.
func FromTest(t *brig.ProviderTest) ProviderTest {
	return ProviderTest{t.OK, t.Message, t.Code, t.Hint, Millis(t.Latency), t.ExitCode, t.Stdout, t.Stderr}
}

// Noun is the inverse of FromTest.
func (t ProviderTest) Noun() *brig.ProviderTest {
	return &brig.ProviderTest{
		OK: t.OK, Message: t.Message, Code: t.Code, Hint: t.Hint, Latency: FromMillis(t.LatencyMS), ExitCode: t.ExitCode, Stdout: t.Stdout, Stderr: t.Stderr,
	}
}

// Routing says which providers are tried, and in which order.
type Routing struct {
	Order    []string       `json:"order,omitempty" doc:"the first choice first; empty is the active provider alone"`
	Split    map[string]int `json:"split,omitempty" doc:"the first is chosen among these at random, by their weights"`
	Overflow []string       `json:"overflow,omitempty" doc:"tried first while the first choice is full"`
	Prefer   string         `json:"prefer,omitempty" doc:"cheapest or region, in the stead of the order"`
	Regions  []string       `json:"regions,omitempty" doc:"of prefer region, the nearest first"`
	Attempts int            `json:"attempts,omitempty" doc:"how many providers are tried, 1 to 3; default 3"`
}

// Noun returns the noun.
func (r Routing) Noun() brig.Routing {
	return brig.Routing{Order: r.Order, Split: r.Split, Overflow: r.Overflow, Prefer: brig.Preference(r.Prefer), Regions: r.Regions, Attempts: r.Attempts}
}

// FromRouting is the inverse of Noun.
func FromRouting(r brig.Routing) Routing {
	return Routing{Order: r.Order, Split: r.Split, Overflow: r.Overflow, Prefer: string(r.Prefer), Regions: r.Regions, Attempts: r.Attempts}
}
