package brig

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// Routing says which providers are tried, and in which order.
type Routing struct {
	// Order has the first choice first; the others are tried when what is
	// before them is unavailable. Empty is the active provider alone.
	Order []string `json:"order,omitempty"`
	// Split chooses the first of these at random, by their weights, and goes on
	// with Order.
	Split map[string]int `json:"split,omitempty"`
	// Overflow are tried first while the first choice is full.
	Overflow []string `json:"overflow,omitempty"`
	// Prefer puts those that are left in another order.
	Prefer Preference `json:"prefer,omitempty"`
	// Regions are those of Prefer "region", the nearest first. Providers
	// elsewhere come after them.
	Regions []string `json:"regions,omitempty"`
	// Attempts is how many providers are tried, 1 to 3. Default 3.
	Attempts int `json:"attempts,omitempty"`

	asked bool // the first of Order is what a request names
}

// Preference is what providers are put in order by.
type Preference string

// The preferences.
const (
	PreferOrder    Preference = ""         // as they are written down
	PreferCheapest Preference = "cheapest" // what a second costs there
	PreferRegion   Preference = "region"   // by Routing.Regions
)

// MaxAttempts is how many providers are tried at most.
const MaxAttempts = 3

// Placement is what a request says of where it wants to be.
type Placement struct {
	// Provider is tried first, or alone if Only.
	Provider string `json:"provider,omitempty"`
	Only     bool   `json:"only,omitempty"`
	// Prefer and Regions take the place of the tenant's.
	Prefer  Preference `json:"prefer,omitempty"`
	Regions []string   `json:"regions,omitzero"`
}

// IsZero reports whether nothing is said.
func (p Placement) IsZero() bool {
	return p.Provider == "" && !p.Only && p.Prefer == "" && p.Regions == nil
}

// Terms are how a provider is used, whatever kind it is.
type Terms struct {
	// Region is where it is, for Prefer "region".
	Region string `json:"region,omitempty"`
	// Max is how many sandboxes and programs it has at once before it is full.
	// 0 is no bound but its own.
	Max int `json:"max,omitempty"`
	// Second is what one second of a sandbox costs there, for Prefer
	// "cheapest".
	Second float64 `json:"second,omitempty"`
}

// Option is a provider that could be chosen.
type Option struct {
	ID    string
	Terms Terms
	// Down says that it did not answer lately, Full that it has no room.
	Down, Full bool
	// Unfit is why it cannot have this request, nil if it can.
	Unfit error
	// Named options are only chosen by their names: what they are is weaker
	// than the active provider.
	Named bool
}

// Choice is one provider to try, and why.
type Choice struct {
	Provider, Reason string
}

// Route is where something went.
type Route struct {
	Provider string `json:"provider"`
	// Reason is why: for example "active", or "fallback: e2b is unavailable".
	Reason string `json:"reason"`
	// Attempts are those that failed before.
	Attempts []Attempt `json:"attempts,omitzero"`
}

// Attempt is a provider that was tried in vain.
type Attempt struct {
	Provider string        `json:"provider"`
	Code     string        `json:"code"`
	Message  string        `json:"message"`
	Took     time.Duration `json:"took"`
}

// With returns r as a request has it.
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
	r.Split, r.Prefer, r.asked = nil, PreferOrder, true
	if p.Only {
		r.Overflow, r.Order = nil, []string{p.Provider}
		return r
	}
	r.Order = slices.Concat([]string{p.Provider}, without(r.Order, p.Provider))
	return r
}

// Plan says which of the options are to be tried, in this order. The roll is a
// random number from 0 to 1, for Split. Without anything to try, the error says
// why.
func (r Routing) Plan(active string, roll float64, options []Option) ([]Choice, error) {
	by := map[string]Option{}
	for _, o := range options {
		by[o.ID] = o
	}
	var unfit error
	var fit []Choice
	for _, c := range r.wanted(active, roll, options) {
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
	fit = r.ready(fit, by)
	return fit[:min(len(fit), r.attempts())], nil
}

func (r Routing) attempts() int {
	if r.Attempts == 0 {
		return MaxAttempts
	}
	return r.Attempts
}

// wanted lists what would be tried if everything were well.
func (r Routing) wanted(active string, roll float64, options []Option) []Choice {
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
		add("cheapest", r.ranked(options, func(o Option) float64 { return o.Terms.Second })...)
	case PreferRegion:
		add("region", r.ranked(options, func(o Option) float64 {
			if at := slices.Index(r.Regions, o.Terms.Region); at >= 0 {
				return float64(at)
			}
			return float64(len(r.Regions))
		})...)
	case PreferOrder:
		add("split", r.drawn(roll)...)
		switch {
		case r.asked:
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

// ranked are the options of Order, or all of them, the lowest first.
func (r Routing) ranked(options []Option, by func(Option) float64) []string {
	var of []Option
	for _, o := range options {
		if slices.Contains(r.Order, o.ID) || len(r.Order) == 0 && !o.Named {
			of = append(of, o)
		}
	}
	slices.SortStableFunc(of, func(a, b Option) int {
		if n := cmp.Compare(by(a), by(b)); n != 0 || len(r.Order) == 0 {
			return n
		}
		return cmp.Compare(slices.Index(r.Order, a.ID), slices.Index(r.Order, b.ID))
	})
	ids := make([]string, 0, len(of))
	for _, o := range of {
		ids = append(ids, o.ID)
	}
	return ids
}

// drawn is what the roll chooses of Split.
func (r Routing) drawn(roll float64) []string {
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

// ready puts what is down or full behind what is not, and says so. What is
// only there for overflow is not tried before the others unless they are full.
func (r Routing) ready(list []Choice, by map[string]Option) []Choice {
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

// Providers are the ids of all providers that it names, after the fields that
// name them.
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

// Check refuses a routing that says nothing sensible. The field is before
// those of its errors.
func (r Routing) Check(field string) error {
	for name, id := range r.Providers(field) {
		if !ValidProviderID(id) {
			return InvalidField(name, "%q cannot be a provider", Clip(id, 63)).WithHint("brig provider list shows those that there are")
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

// Check refuses a placement that says nothing sensible.
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

func without(list []string, s string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return x == s })
}

// Elsewhere reports whether what a provider could not do another one may: it
// could not be reached, had no room, or failed to make a machine.
func Elsewhere(err error) bool {
	switch KindOf(err) {
	case Unavailable, ConnectionFailed, CreationFailed, RateLimited, NotInitialized:
		return true
	}
	return false
}

// ErrBegan is a cause of an error after which a program may have done something
// already: to run it elsewhere would be to run it twice.
var ErrBegan = errors.New("the program may have begun")
