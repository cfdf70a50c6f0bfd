package v1

import (
	"encoding/json"

	"github.com/brig-run/brig"
)

// Placement is the preferred provider and region of a request.
type Placement struct {
	Provider string   `json:"provider,omitempty" doc:"ID of the provider to try first"`
	Only     bool     `json:"only,omitempty" doc:"try no other provider"`
	Prefer   string   `json:"prefer,omitempty" doc:"cheapest or region; replaces the order of the tenant's routing" enum:"cheapest,region"`
	Regions  []string `json:"regions,omitempty" doc:"regions by preference"`
}

// ToPlacement converts p to its domain type.
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

// Route is the provider on which a sandbox was created, and the reason for the
// choice.
type Route struct {
	Provider string    `json:"provider"`
	Reason   string    `json:"reason" doc:"for example active, asked for, cheapest, or fallback: e2b is unavailable"`
	Attempts []Attempt `json:"attempts,omitempty" doc:"failed attempts"`
}

// Attempt is a failed attempt with a provider.
type Attempt struct {
	Provider string  `json:"provider"`
	Code     string  `json:"code"`
	Message  string  `json:"message"`
	TookMS   float64 `json:"took_ms"`
}

// FromRoute converts r to its wire type. It returns nil for an empty route.
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

// Terms are the conditions for the use of a provider.
type Terms struct {
	Region string  `json:"region,omitempty" doc:"region of the provider" maxLength:"63"`
	Max    int     `json:"max,omitempty" doc:"maximum sandboxes and programs at a time; 0 is unlimited" minimum:"0"`
	Second float64 `json:"second,omitempty" doc:"price of one second of a sandbox" minimum:"0"`
}

// TermsChange changes terms. Missing fields keep their values.
type TermsChange struct {
	Region *string  `json:"region,omitempty" doc:"region of the provider" maxLength:"63"`
	Max    *int     `json:"max,omitempty" doc:"maximum sandboxes and programs at a time; 0 is unlimited" minimum:"0"`
	Second *float64 `json:"second,omitempty" doc:"price of one second of a sandbox" minimum:"0"`
}

// ProviderRequest is the connection and the terms of a provider.
type ProviderRequest struct {
	Config   Object       `json:"config,omitempty" doc:"settings, as described by fields; if omitted, they stay unchanged, and so does a masked secret"`
	Terms    *TermsChange `json:"terms,omitempty" doc:"omitted fields keep their values"`
	Activate bool         `json:"activate,omitempty" doc:"make it the active provider"`
	Test     bool         `json:"test,omitempty" doc:"run a test program first, and change nothing if it fails"`
	Rev      *int64       `json:"rev,omitempty" doc:"reject the change (409) if the provider has another revision" minimum:"1" example:"1764000000000000"`
}

// Domain converts p to the configuration of the provider id. current contains
// the provider's current terms.
func (p ProviderRequest) Domain(id string, current brig.Terms) brig.ProviderConfig {
	out := brig.ProviderConfig{ID: id, Config: json.RawMessage(p.Config), Activate: p.Activate, Test: p.Test}
	setIfGiven(&out.Rev, p.Rev)
	if p.Terms != nil {
		t := p.Terms.Apply(current)
		out.Terms = &t
	}
	return out
}

// FromProviderConfig is the inverse of ProviderRequest.Domain.
func FromProviderConfig(c brig.ProviderConfig) ProviderRequest {
	out := ProviderRequest{Config: Object(c.Config), Activate: c.Activate, Test: c.Test, Rev: revOf(c.Rev)}
	if c.Terms != nil {
		t := *c.Terms
		out.Terms = &TermsChange{Region: &t.Region, Max: &t.Max, Second: &t.Second}
	}
	return out
}

// TestRequest is the request to test a provider.
type TestRequest struct {
	Config Object `json:"config,omitempty" doc:"settings to test; default: the stored ones"`
}

// Provider is the operator's view of a provider.
type Provider struct {
	ID         string             `json:"id"`
	Driver     string             `json:"driver" doc:"kind of the provider"`
	Title      string             `json:"title"`
	Doc        string             `json:"description"`
	Tags       []string           `json:"tags" nullable:"false"`
	Languages  []string           `json:"languages" nullable:"false"`
	Fields     []brig.ConfigField `json:"fields" nullable:"false" doc:"fields of the configuration, in order"`
	Configured bool               `json:"configured"`
	Active     bool               `json:"active"`
	Home       bool               `json:"home,omitempty" doc:"whether it is the server's own machine, which always exists"`
	Config     Object             `json:"config,omitempty" doc:"settings; secrets show only their last four characters"`
	Terms      Terms              `json:"terms"`
	Up         bool               `json:"up" doc:"whether it answered the last check"`
	Why        string             `json:"why,omitempty" doc:"why it is not up"`
	Users      int                `json:"users" doc:"current number of sandboxes and programs"`
	RunsOnly   bool               `json:"runs_only,omitempty" doc:"it only runs programs and has no persistent sandboxes"`
	Provides   *Capabilities      `json:"capabilities,omitempty"`
	Rev        int64              `json:"rev,omitempty" doc:"revision; changes with every change of config and terms"`
}

// Providers is a list of providers.
type Providers struct {
	Providers []Provider `json:"providers" nullable:"false"`
}

// FromProvider converts p to its wire type.
func FromProvider(p *brig.ProviderInfo) Provider {
	out := Provider{
		ID: p.ID, Driver: p.Driver, Title: p.Title, Doc: p.Doc, Tags: append([]string{}, p.Tags...), Languages: []string{},
		Fields: append([]brig.ConfigField{}, p.Fields...), Configured: p.Configured, Active: p.Active, Home: p.Home,
		Config: Object(p.Config), Terms: Terms(p.Terms), Up: p.Up, Why: p.Why, Users: p.Users, RunsOnly: p.Capabilities.RunsOnly, Rev: p.Rev,
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

// Domain is the inverse of FromProvider.
func (p *Provider) Domain() *brig.ProviderInfo {
	out := &brig.ProviderInfo{
		ID: p.ID, Driver: p.Driver, Title: p.Title, Doc: p.Doc, Tags: p.Tags, Fields: p.Fields, Configured: p.Configured,
		Active: p.Active, Home: p.Home, Config: json.RawMessage(p.Config), Terms: brig.Terms(p.Terms), Up: p.Up, Why: p.Why, Users: p.Users, Rev: p.Rev,
	}
	for _, l := range p.Languages {
		out.Languages = append(out.Languages, brig.Language(l))
	}
	if p.Provides != nil {
		out.Capabilities = *p.Provides.Domain()
		out.Capabilities.RunsOnly = p.RunsOnly
	}
	return out
}

// ProviderTest is the result of a test program on a provider.
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

// FromTest converts t to its wire type.
func FromTest(t *brig.ProviderTest) ProviderTest {
	return ProviderTest{t.OK, t.Message, t.Code, t.Hint, Millis(t.Latency), t.ExitCode, t.Stdout, t.Stderr}
}

// Domain is the inverse of FromTest.
func (t ProviderTest) Domain() *brig.ProviderTest {
	return &brig.ProviderTest{
		OK: t.OK, Message: t.Message, Code: t.Code, Hint: t.Hint, Latency: FromMillis(t.LatencyMS), ExitCode: t.ExitCode, Stdout: t.Stdout, Stderr: t.Stderr,
	}
}

// Routing lists the providers in the order in which the server tries them.
type Routing struct {
	Order    []string       `json:"order,omitempty" doc:"providers in the order of preference; empty: only the active provider"`
	Split    map[string]int `json:"split,omitempty" doc:"chooses the first provider at random, by weight" minimum:"1" maximum:"1000"`
	Overflow []string       `json:"overflow,omitempty" doc:"provider to try first while the first choice is full"`
	Prefer   string         `json:"prefer,omitempty" doc:"cheapest or region; replaces the order" enum:"cheapest,region"`
	Regions  []string       `json:"regions,omitempty" doc:"regions for prefer, by preference"`
	Attempts int            `json:"attempts,omitempty" doc:"number of providers to try, 1 to 3; default 3" minimum:"0" maximum:"3"`
	Rev      *int64         `json:"rev,omitempty" doc:"revision; changes with every change"`
}

// RoutingChange changes a routing. Missing fields keep their values. An empty
// list or object removes the current one.
type RoutingChange struct {
	Order    []string       `json:"order,omitempty" doc:"providers in the order of preference; empty: only the active provider"`
	Split    map[string]int `json:"split,omitempty" doc:"chooses the first provider at random, by weight" minimum:"1" maximum:"1000"`
	Overflow []string       `json:"overflow,omitempty" doc:"provider to try first while the first choice is full"`
	Prefer   *string        `json:"prefer,omitempty" doc:"cheapest or region; replaces the order; empty: use the order" pattern:"^(?:cheapest|region)?$"`
	Regions  []string       `json:"regions,omitempty" doc:"regions for prefer, by preference"`
	Attempts *int           `json:"attempts,omitempty" doc:"number of providers to try, 1 to 3; 0 is the default, 3" minimum:"0" maximum:"3"`
	Rev      *int64         `json:"rev,omitempty" doc:"reject the change (409) if the routing has another revision" minimum:"1" example:"1764000000000000"`
}

// Domain converts r to its domain type.
func (r Routing) Domain() brig.Routing {
	out := brig.Routing{Order: r.Order, Split: r.Split, Overflow: r.Overflow, Prefer: brig.Preference(r.Prefer), Regions: r.Regions, Attempts: r.Attempts}
	setIfGiven(&out.Rev, r.Rev)
	return out
}

// FromRouting is the inverse of Routing.Domain.
func FromRouting(r brig.Routing) Routing {
	return Routing{Order: r.Order, Split: r.Split, Overflow: r.Overflow, Prefer: string(r.Prefer), Regions: r.Regions, Attempts: r.Attempts, Rev: revOf(r.Rev)}
}
