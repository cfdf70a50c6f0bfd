package wire

import (
	"math"
	"time"

	"github.com/brig-run/brig"
)

// KeyRequest asks for a key.
type KeyRequest struct {
	Name   string   `json:"name" doc:"whose it is, or what for"`
	Tenant string   `json:"tenant,omitempty" doc:"default the caller's own; others are for operators"`
	Role   string   `json:"role" doc:"viewer, member, admin or operator; no higher than the caller's own"`
	Scopes []string `json:"scopes,omitempty" doc:"beginnings of operations' names, for example file.read or sandbox.; default all that the role may"`
	TTLMS  int64    `json:"ttl_ms,omitempty" doc:"how long it is good for; default until it is revoked"`
	Kind   string   `json:"kind,omitempty" doc:"brig (the default), or e2b for E2B's clients"`
}

// Key is what can be known of a key.
type Key struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Tenant  string    `json:"tenant"`
	Role    string    `json:"role"`
	Scopes  []string  `json:"scopes,omitempty"`
	Kind    string    `json:"kind,omitempty"`
	Prefix  string    `json:"prefix,omitempty" doc:"how it begins"`
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"last_used,omitzero" doc:"to the minute"`
}

// NewKey is a key that was just made.
type NewKey struct {
	Key
	Secret string `json:"key" doc:"the key itself, which is never told again"`
}

// Keys lists keys.
type Keys struct {
	Keys []Key `json:"keys" nullable:"false"`
}

// GrantRequest asks for a grant of a part of the caller's rights.
type GrantRequest struct {
	Role      string   `json:"role,omitempty" doc:"default the caller's own"`
	Scopes    []string `json:"scopes,omitempty" doc:"default the caller's own"`
	Sandboxes []string `json:"sandboxes,omitempty" doc:"names of the only sandboxes that it is good for"`
	TTLMS     int64    `json:"ttl_ms,omitempty" doc:"default an hour, at most a day"`
}

// Grant is a token and what it lets its bearer do.
type Grant struct {
	ID        string    `json:"id"`
	Key       string    `json:"key_id" doc:"the key with which it ends"`
	Tenant    string    `json:"tenant"`
	Role      string    `json:"role"`
	Scopes    []string  `json:"scopes,omitempty"`
	Sandboxes []string  `json:"sandboxes,omitempty"`
	Expires   time.Time `json:"expires"`
	Secret    string    `json:"grant" doc:"the token, used as a key is"`
}

// Quota bounds what a tenant uses. What is left out is not bounded.
type Quota struct {
	Sandboxes        int     `json:"sandboxes,omitempty" doc:"that live at once, one-shots included"`
	Executions       int     `json:"executions,omitempty" doc:"that go on at once: runs, commands, code and processes"`
	ExecutionsPerDay int64   `json:"executions_per_day,omitempty"`
	ExecutionMS      int64   `json:"execution_ms_per_day,omitempty"`
	CPUMS            int64   `json:"cpu_ms_per_day,omitempty" doc:"reserved: processors that sandboxes may use, times how long they live"`
	GiBSeconds       float64 `json:"gib_seconds_per_day,omitempty" doc:"reserved: memory that sandboxes may use, times how long they live"`
	Egress           Size    `json:"egress_bytes_per_day,omitempty"`
	Storage          Size    `json:"storage,omitempty" doc:"what sandboxes that live may write to their file systems together"`
	Workspaces       Size    `json:"workspaces,omitempty" doc:"what versions of workspaces take together; contents that they have in common count once"`
	Rate             float64 `json:"rate,omitempty" doc:"calls a second, of the whole tenant"`
	RatePerKey       float64 `json:"rate_per_key,omitempty" doc:"calls a second, of each key"`
}

// Ceilings bound what each sandbox of a tenant may ask for.
type Ceilings struct {
	Limits      *Limits  `json:"limits,omitempty" doc:"the most of each"`
	MaxTTLMS    int64    `json:"max_ttl_ms,omitempty"`
	MaxLifeMS   int64    `json:"max_life_ms,omitempty"`
	TimeoutMS   int64    `json:"max_timeout_ms,omitempty"`
	Images      []string `json:"images,omitempty" doc:"names, patterns with * and ?, or digests of the images that may be used; default all"`
	DigestsOnly bool     `json:"digests_only,omitempty" doc:"images must be asked for by their digest"`

	Screening *Screening `json:"screening,omitempty" doc:"which code is refused, beside what the server refuses of everybody's"`
}

// Screening refuses code for what is written in it.
type Screening struct {
	Python     *ScreenRules `json:"python,omitempty" doc:"without rules no Python may run, unless others says so"`
	JavaScript *ScreenRules `json:"javascript,omitempty" doc:"TypeScript is screened as the JavaScript that it becomes"`
	Others     bool         `json:"others,omitempty" doc:"languages without rules may run"`
}

// ScreenRules are what is not wanted in sources of one language.
type ScreenRules struct {
	Imports    []string `json:"imports,omitempty" doc:"modules that may not be imported"`
	Calls      []string `json:"calls,omitempty" doc:"functions that may not be used: eval, os.system"`
	Attributes []string `json:"attributes,omitempty" doc:"members that may not be read of anything"`
	Only       bool     `json:"only,omitempty" doc:"nothing may be imported but what allow lists, and what cannot be parsed may not run"`
	Allow      []string `json:"allow,omitempty"`
	Commands   bool     `json:"commands,omitempty" doc:"commands of IPython may run"`
}

// TenantRequest asks for a tenant.
type TenantRequest struct {
	Name     string    `json:"name" doc:"1 to 63 of a-z, 0-9 and -"`
	Quota    *Quota    `json:"quota,omitempty" doc:"default the server's for new tenants"`
	Budget   float64   `json:"budget,omitempty" doc:"what executions of a calendar month may cost before an alert says so"`
	Ceilings *Ceilings `json:"ceilings,omitempty"`
}

// TenantChange gives a tenant another quota and other ceilings, as a whole.
type TenantChange struct {
	Quota    *Quota    `json:"quota,omitempty"`
	Budget   float64   `json:"budget,omitempty"`
	Ceilings *Ceilings `json:"ceilings,omitempty"`
}

// Tenant is a tenant.
type Tenant struct {
	Name     string    `json:"name"`
	Quota    Quota     `json:"quota"`
	Budget   float64   `json:"budget,omitempty"`
	Ceilings Ceilings  `json:"ceilings"`
	Created  time.Time `json:"created,omitzero"`
}

// Tenants lists tenants.
type Tenants struct {
	Tenants []Tenant `json:"tenants" nullable:"false"`
}

// UsageLine is what a tenant used on a day.
type UsageLine struct {
	Tenant     string  `json:"tenant"`
	Day        string  `json:"day"`
	Label      string  `json:"label,omitempty"`
	Value      string  `json:"value,omitempty" doc:"the label's"`
	Executions int64   `json:"executions"`
	ExecMS     float64 `json:"execution_ms"`
	CPUMS      float64 `json:"cpu_ms" doc:"reserved"`
	GiBSeconds float64 `json:"gib_seconds" doc:"reserved"`
	Egress     int64   `json:"egress_bytes"`
	Stored     int64   `json:"stored_bytes,omitempty" doc:"what versions of workspaces take now; only today's sum has it, and not while their store cannot be read"`
	Cost       float64 `json:"cost,omitempty" doc:"of executions, by the rates that the server has for their providers"`
}

// Usage is what was used.
type Usage struct {
	Usage []UsageLine `json:"usage" nullable:"false"`
}

// span reads milliseconds; what no duration can hold becomes the longest.
func span(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(min(ms, most), -most)) * time.Millisecond
}

// Noun returns what the request means.
func (k KeyRequest) Noun() (brig.KeySpec, error) {
	role, err := brig.ParseRole(k.Role)
	return brig.KeySpec{Name: k.Name, Tenant: k.Tenant, Role: role, Scopes: k.Scopes, TTL: span(k.TTLMS), Kind: brig.KeyKind(k.Kind)}, err
}

// FromKeySpec writes what is asked for.
func FromKeySpec(k brig.KeySpec) KeyRequest {
	return KeyRequest{Name: k.Name, Tenant: k.Tenant, Role: k.Role.String(), Scopes: k.Scopes, TTLMS: k.TTL.Milliseconds(), Kind: string(k.Kind)}
}

// FromKey writes a key.
func FromKey(k *brig.Key) Key {
	return Key{
		ID: k.ID, Name: k.Actor.Name, Tenant: k.Actor.Tenant, Role: k.Actor.Role.String(), Scopes: k.Actor.Scopes,
		Kind: string(k.Kind), Prefix: k.Prefix, Created: k.Created, Expires: k.Actor.Expires, Used: k.Used,
	}
}

// Noun returns the key.
func (k Key) Noun() *brig.Key {
	role, _ := brig.ParseRole(k.Role) // one that only a newer server knows is nobody's
	return &brig.Key{
		ID: k.ID, Kind: brig.KeyKind(k.Kind), Prefix: k.Prefix, Created: k.Created, Used: k.Used,
		Actor: brig.Actor{Name: k.Name, Tenant: k.Tenant, Role: role, Key: k.ID, Scopes: k.Scopes, Expires: k.Expires},
	}
}

// Noun returns what the request means.
func (g GrantRequest) Noun() (spec brig.GrantSpec, err error) {
	if g.Role != "" {
		spec.Role, err = brig.ParseRole(g.Role)
	}
	spec.Scopes, spec.Sandboxes, spec.TTL = g.Scopes, g.Sandboxes, span(g.TTLMS)
	return spec, err
}

// FromGrantSpec writes what is asked for.
func FromGrantSpec(g brig.GrantSpec) GrantRequest {
	out := GrantRequest{Scopes: g.Scopes, Sandboxes: g.Sandboxes, TTLMS: g.TTL.Milliseconds()}
	if g.Role != brig.Nobody {
		out.Role = g.Role.String()
	}
	return out
}

// FromGrant writes a grant.
func FromGrant(g *brig.NewGrant) Grant {
	a := g.Actor
	return Grant{
		ID: a.Grant, Key: a.Key, Tenant: a.Tenant, Role: a.Role.String(), Scopes: a.Scopes, Sandboxes: a.Sandboxes,
		Expires: a.Expires, Secret: g.Secret,
	}
}

// Noun returns the grant.
func (g Grant) Noun() *brig.NewGrant {
	role, _ := brig.ParseRole(g.Role) // one that only a newer server knows is nobody's
	return &brig.NewGrant{Secret: g.Secret, Actor: brig.Actor{
		Tenant: g.Tenant, Role: role, Key: g.Key, Grant: g.ID, Scopes: g.Scopes, Sandboxes: g.Sandboxes, Expires: g.Expires,
	}}
}

// Noun returns the quota, none for nil.
func (q *Quota) Noun() brig.Quota {
	if q == nil {
		return brig.Quota{}
	}
	return brig.Quota{
		Sandboxes: q.Sandboxes, Executions: q.Executions, ExecutionsPerDay: q.ExecutionsPerDay,
		ExecutionTimePerDay: span(q.ExecutionMS), CPUTimePerDay: span(q.CPUMS), MemoryPerDay: q.GiBSeconds,
		EgressPerDay: int64(q.Egress), Storage: int64(q.Storage), Workspaces: int64(q.Workspaces), Rate: q.Rate, RatePerKey: q.RatePerKey,
	}
}

// FromQuota writes a quota.
func FromQuota(q brig.Quota) Quota {
	return Quota{
		Sandboxes: q.Sandboxes, Executions: q.Executions, ExecutionsPerDay: q.ExecutionsPerDay,
		ExecutionMS: q.ExecutionTimePerDay.Milliseconds(), CPUMS: q.CPUTimePerDay.Milliseconds(), GiBSeconds: q.MemoryPerDay,
		Egress: Size(q.EgressPerDay), Storage: Size(q.Storage), Workspaces: Size(q.Workspaces), Rate: q.Rate, RatePerKey: q.RatePerKey,
	}
}

// Noun returns the ceilings, none for nil.
func (c *Ceilings) Noun() brig.Ceilings {
	if c == nil {
		return brig.Ceilings{}
	}
	out := brig.Ceilings{
		MaxTTL: span(c.MaxTTLMS), MaxLife: span(c.MaxLifeMS), MaxTimeout: span(c.TimeoutMS), Images: c.Images, DigestsOnly: c.DigestsOnly,
		Screening: c.Screening.noun(),
	}
	if l := c.Limits; l != nil {
		out.Limits = brig.Limits{
			Memory: int64(l.Memory), CPUs: l.CPUs, Processes: l.Processes, OpenFiles: l.OpenFiles, Disk: int64(l.Disk), Output: int64(l.Output),
		}
	}
	return out
}

// FromCeilings writes ceilings.
func FromCeilings(c brig.Ceilings) Ceilings {
	out := Ceilings{
		MaxTTLMS: c.MaxTTL.Milliseconds(), MaxLifeMS: c.MaxLife.Milliseconds(), TimeoutMS: c.MaxTimeout.Milliseconds(),
		Images: c.Images, DigestsOnly: c.DigestsOnly, Screening: fromScreening(c.Screening),
	}
	if l := c.Limits; l != (brig.Limits{}) {
		out.Limits = &Limits{
			Memory: Size(l.Memory), CPUs: l.CPUs, Processes: l.Processes, OpenFiles: l.OpenFiles, Disk: Size(l.Disk), Output: Size(l.Output),
		}
	}
	return out
}

// FromTenant writes a tenant.
func FromTenant(t *brig.Tenant) Tenant {
	return Tenant{Name: t.Name, Budget: t.Budget, Quota: FromQuota(t.Quota), Ceilings: FromCeilings(t.Ceilings), Created: t.Created}
}

// Noun returns the tenant.
func (t Tenant) Noun() *brig.Tenant {
	return &brig.Tenant{Name: t.Name, Budget: t.Budget, Quota: t.Quota.Noun(), Ceilings: t.Ceilings.Noun(), Created: t.Created}
}

// FromUsage writes what was used.
func FromUsage(lines []brig.UsageLine) Usage {
	out := Usage{Usage: []UsageLine{}}
	for _, l := range lines {
		out.Usage = append(out.Usage, UsageLine{
			Tenant: l.Tenant, Day: l.Day, Label: l.Label, Value: l.Value, Executions: l.Executions,
			ExecMS: Millis(l.ExecutionTime), CPUMS: Millis(l.CPUTime), GiBSeconds: l.Memory, Egress: l.Egress, Stored: l.Stored, Cost: l.Cost,
		})
	}
	return out
}

// Noun returns what was used.
func (u Usage) Noun() (out []brig.UsageLine) {
	for _, l := range u.Usage {
		out = append(out, brig.UsageLine{Tenant: l.Tenant, Day: l.Day, Label: l.Label, Value: l.Value, Stored: l.Stored, Spent: brig.Spent{
			Executions: l.Executions, ExecutionTime: FromMillis(l.ExecMS), CPUTime: FromMillis(l.CPUMS), Memory: l.GiBSeconds, Egress: l.Egress, Cost: l.Cost,
		}})
	}
	return out
}
