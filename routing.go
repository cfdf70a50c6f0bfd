package brig

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// Routing determines the providers to try and their order.
type Routing struct {
	// Order lists the providers by priority. The next one is tried when those
	// before it are unavailable. Empty means the active provider only.
	Order []string `json:"order,omitempty"`
	// Split selects the first provider at random by weight, and continues with
	// Order.
	Split map[string]int `json:"split,omitempty"`
	// Overflow lists the providers that are tried first when the first choice is
	// at capacity.
	Overflow []string `json:"overflow,omitempty"`
	// Prefer is the criterion by which the remaining providers are ordered.
	Prefer Preference `json:"prefer,omitempty"`
	// Regions are the regions for Prefer "region", nearest first. Providers in
	// other regions come last.
	Regions []string `json:"regions,omitempty"`
	// Attempts is the number of providers to try, 1 to 3. Default: 3.
	Attempts int `json:"attempts,omitempty"`
	// Rev increases with every change. SetRouting rejects a change that is
	// based on another revision (see IsConflict); 0 skips the check.
	Rev int64 `json:"rev,omitempty"`

	named bool // whether the request names the first provider of Order
}

// Preference is a criterion for the order of providers.
type Preference string

// Preferences for the order of providers.
const (
	PreferOrder    Preference = ""         // the configured order
	PreferCheapest Preference = "cheapest" // ascending price of an execution of one second
	PreferRegion   Preference = "region"   // by Routing.Regions
)

// MaxAttempts is the maximum number of providers to try.
const MaxAttempts = 3

// Placement is a request's constraint on where it runs.
type Placement struct {
	// Provider is the provider to try first, or the only one to try if Only is
	// set.
	Provider string `json:"provider,omitempty"`
	Only     bool   `json:"only,omitempty"`
	// Prefer and Regions replace those of the tenant.
	Prefer  Preference `json:"prefer,omitempty"`
	Regions []string   `json:"regions,omitzero"`
}

// IsZero reports whether the placement has no constraint.
func (p Placement) IsZero() bool {
	return p.Provider == "" && !p.Only && p.Prefer == "" && p.Regions == nil
}

// Terms are the settings for the use of a provider of any kind.
type Terms struct {
	// Region is the provider's region, for Prefer "region".
	Region string `json:"region,omitempty"`
	// Max is the number of concurrent sandboxes and programs at which the provider
	// is full. 0 means no bound other than the provider's own.
	Max int `json:"max,omitempty"`
	// Second is the price of one second of an execution, for Prefer "cheapest" and
	// for the tenants' costs. It applies if the server's configuration has no rate
	// for the provider.
	Second float64 `json:"second,omitempty"`
}

// Option is a candidate provider.
type Option struct {
	ID    string
	Terms Terms
	// Price is the price of an execution of one second.
	Price float64
	// Down is true if the provider did not respond recently, and Full if it has
	// no capacity left.
	Down, Full bool
	// Unfit is the reason why the provider cannot run this request; nil if the
	// provider can run it.
	Unfit error
	// Named options are selected only by name, because their isolation is weaker
	// than that of the active provider.
	Named bool
}

// Choice is a provider to try, with the reason.
type Choice struct {
	Provider, Reason string
}

// Route is the provider that a request was placed on.
type Route struct {
	Provider string `json:"provider"`
	// Reason explains the selection, for example "active" or "fallback: e2b is
	// unavailable".
	Reason string `json:"reason"`
	// Attempts are the preceding failed attempts.
	Attempts []Attempt `json:"attempts,omitzero"`
}

// Attempt is a failed attempt on a provider.
type Attempt struct {
	Provider string        `json:"provider"`
	Code     string        `json:"code"`
	Message  string        `json:"message"`
	Took     time.Duration `json:"took"`
}

// With returns r with the constraints of a request.
func (r Routing) With(p Placement) Routing {
	if p.Prefer != "" || len(p.Regions) > 0 {
		r.Prefer, r.Regions = p.Prefer, p.Regions
		if p.Prefer == "" {
			r.Prefer = PreferRegion
		}
	}
	if p.Provider == "" {
		return r
	}
	r.Split, r.Prefer, r.named = nil, PreferOrder, true
	if p.Only {
		r.Overflow, r.Order = nil, []string{p.Provider}
		return r
	}
	r.Order = slices.Concat([]string{p.Provider}, removeString(r.Order, p.Provider))
	return r
}

// Plan returns the options to try, in order. roll is a random number from 0 to 1,
// for Split. If no option can be tried, Plan returns the reason as an error.
func (r Routing) Plan(active string, roll float64, options []Option) ([]Choice, error) {
	by := map[string]Option{}
	for _, o := range options {
		by[o.ID] = o
	}
	var unfit error
	var fit []Choice
	for _, c := range r.orderByPreference(active, roll, options) {
		o, ok := by[c.Provider]
		switch {
		case !ok && unfit == nil:
			unfit = Errorf(FailedPrecondition, "the provider %q is not configured", Clip(c.Provider, 63)).
				WithHint("configure it with brig provider configure, or leave it out of the routing")
		case ok && o.Unfit != nil && unfit == nil:
			unfit = o.Unfit
		case ok && o.Unfit == nil:
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		if unfit == nil {
			unfit = Errorf(NotInitialized, "Sandbox provider type not configured").
				WithHint("configure one: brig provider configure; brig provider activate")
		}
		return nil, unfit
	}
	fit = r.demoteUnavailable(fit, by)
	return fit[:min(len(fit), r.attempts())], nil
}

func (r Routing) attempts() int {
	if r.Attempts == 0 {
		return MaxAttempts
	}
	return r.Attempts
}

// orderByPreference returns the providers in order of preference, as if all were
// available.
func (r Routing) orderByPreference(active string, roll float64, options []Option) []Choice {
	var out []Choice
	add := func(reason string, ids ...string) {
		for _, id := range ids {
			if !slices.ContainsFunc(out, func(c Choice) bool { return c.Provider == id }) {
				out = append(out, Choice{id, reason})
			}
		}
	}
	order := r.Order
	if len(order) == 0 && active != "" {
		order = []string{active}
	}
	switch r.Prefer {
	case PreferCheapest:
		add("cheapest", r.rankOptions(options, func(o Option) float64 { return o.Price })...)
	case PreferRegion:
		add("region", r.rankOptions(options, func(o Option) float64 {
			if at := slices.Index(r.Regions, o.Terms.Region); at >= 0 {
				return float64(at)
			}
			return float64(len(r.Regions))
		})...)
	case PreferOrder:
		add("split", r.drawSplit(roll)...)
		switch {
		case r.named:
			add("asked for", order...)
		case len(r.Order) == 0:
			add("active", order...)
		default:
			add("first of the order", order...)
		}
	}
	add("overflow", r.Overflow...)
	return out
}

// rankOptions returns the IDs of the options in Order, sorted by ascending value.
// If Order is empty, it returns all options that are not Named.
func (r Routing) rankOptions(options []Option, by func(Option) float64) []string {
	var candidates []Option
	for _, o := range options {
		if slices.Contains(r.Order, o.ID) || len(r.Order) == 0 && !o.Named {
			candidates = append(candidates, o)
		}
	}
	slices.SortStableFunc(candidates, func(a, b Option) int {
		if n := cmp.Compare(by(a), by(b)); n != 0 || len(r.Order) == 0 {
			return n
		}
		return cmp.Compare(slices.Index(r.Order, a.ID), slices.Index(r.Order, b.ID))
	})
	ids := make([]string, 0, len(candidates))
	for _, o := range candidates {
		ids = append(ids, o.ID)
	}
	return ids
}

// drawSplit returns the provider that the roll selects from Split.
func (r Routing) drawSplit(roll float64) []string {
	sum := 0
	for _, w := range r.Split {
		sum += w
	}
	at := roll * float64(sum)
	for _, id := range slices.Sorted(maps.Keys(r.Split)) {
		if at -= float64(r.Split[id]); at < 0 {
			return []string{id}
		}
	}
	return nil
}

// demoteUnavailable moves unavailable and full providers behind the others,
// with the reason. Overflow providers come before the others only if those are
// full.
func (r Routing) demoteUnavailable(list []Choice, by map[string]Option) []Choice {
	first := by[list[0].Provider]
	rank := func(c Choice) int {
		o := by[c.Provider]
		switch {
		case o.Down:
			return 4
		case o.Full:
			return 3
		case c.Reason == "overflow" && !first.Full:
			return 2
		case c.Reason != "overflow" && first.Full && len(r.Overflow) > 0:
			return 1
		}
		return 0
	}
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b Choice) int { return cmp.Compare(rank(a), rank(b)) })
	for i := range out {
		c := &out[i]
		switch {
		case c.Provider == list[0].Provider:
		case first.Down:
			c.Reason = fmt.Sprintf("fallback: %s is unavailable", list[0].Provider)
		case first.Full:
			c.Reason = fmt.Sprintf("overflow: %s is full", list[0].Provider)
		default:
			c.Reason = "fallback"
		}
	}
	return out
}

// Providers yields the IDs of all providers in the routing, each with the field
// that contains it.
func (r Routing) Providers(field string) iter.Seq2[string, string] {
	return func(yield func(field, id string) bool) {
		for i, id := range r.Order {
			if !yield(fmt.Sprintf("%s.order[%d]", field, i), id) {
				return
			}
		}
		for i, id := range r.Overflow {
			if !yield(fmt.Sprintf("%s.overflow[%d]", field, i), id) {
				return
			}
		}
		for _, id := range slices.Sorted(maps.Keys(r.Split)) {
			if !yield(field+".split."+Clip(id, 63), id) {
				return
			}
		}
	}
}

// Check rejects an invalid routing. field is the prefix of the fields in its
// errors.
func (r Routing) Check(field string) error {
	for name, id := range r.Providers(field) {
		if !ValidProviderID(id) {
			return InvalidField(name, "%q cannot be a provider", Clip(id, 63)).WithHint("list them with brig provider ls")
		}
	}
	for id, w := range r.Split {
		if w < 1 || w > 1000 {
			return InvalidField(field+".split."+id, "a weight of %d", w).WithHint("give 1 to 1000")
		}
	}
	if r.Attempts < 0 || r.Attempts > MaxAttempts {
		return InvalidField(field+".attempts", "%d attempts", r.Attempts).WithHint("give 1 to %d, or leave it out", MaxAttempts)
	}
	return checkPreference(field+".prefer", r.Prefer, r.Regions)
}

// Check rejects an invalid placement.
func (p Placement) Check(field string) error {
	if p.Provider != "" && !ValidProviderID(p.Provider) {
		return InvalidField(field+".provider", "%q cannot be a provider", Clip(p.Provider, 63)).WithHint("leave it out, or ask an operator for one's id")
	}
	if p.Only && p.Provider == "" {
		return InvalidField(field+".only", "no provider is named").WithHint("give %s.provider", field)
	}
	return checkPreference(field+".prefer", p.Prefer, p.Regions)
}

func checkPreference(field string, p Preference, regions []string) error {
	switch p {
	case PreferOrder, PreferCheapest:
	case PreferRegion:
		if len(regions) == 0 {
			return InvalidField(field, "there are no regions").WithHint("give them, the nearest first")
		}
	default:
		return InvalidField(field, "no preference %q", Clip(string(p), 40)).WithHint("use cheapest or region, or leave it out")
	}
	return nil
}

func removeString(list []string, s string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return x == s })
}

// CanRetryElsewhere reports whether another provider may succeed after this error: the
// provider was unreachable, out of capacity, or failed to create an instance.
func CanRetryElsewhere(err error) bool {
	switch KindOf(err) {
	case Unavailable, ConnectionFailed, CreationFailed, RateLimited, NotInitialized:
		return true
	}
	return false
}
