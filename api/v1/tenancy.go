package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// KeyRequest is the request to create an API key.
type KeyRequest struct {
	Name   string   `json:"name" doc:"a name for the key, such as its owner or purpose" minLength:"1" maxLength:"128" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]+$"`
	Tenant string   `json:"tenant,omitempty" doc:"default: the caller's tenant; other tenants are for operators" minLength:"1" maxLength:"128"`
	Role   string   `json:"role" doc:"viewer, member, admin or operator; not above the caller's role" enum:"viewer,member,admin,operator"`
	Scopes []string `json:"scopes,omitempty" doc:"prefixes of operation names, for example file.read or sandbox.; default: all operations of the role" maxItems:"64" items:"^[a-z._]{1,64}$"`
	TTLMS  int64    `json:"ttl_ms,omitempty" doc:"lifetime of the key; default: until it is revoked" minimum:"0" maximum:"315360000000"`
	Kind   string   `json:"kind,omitempty" doc:"brig (the default), or e2b for E2B's clients" enum:"brig,e2b"`
}

// Key is the description of an API key without its secret.
type Key struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Tenant  string    `json:"tenant"`
	Role    string    `json:"role" enum:"viewer,member,admin,operator"`
	Scopes  []string  `json:"scopes,omitempty"`
	Kind    string    `json:"kind,omitempty"`
	Prefix  string    `json:"prefix,omitempty" doc:"first characters of the key"`
	Created time.Time `json:"created,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"last_used,omitzero" doc:"accurate to a minute"`
}

// NewKey is a new API key.
type NewKey struct {
	Key
	Secret string `json:"key" doc:"the API key; the server never returns it again"`
}

// Keys is a list of keys.
type Keys struct {
	Keys []Key `json:"keys" nullable:"false"`
}

// GrantRequest is the request to create a grant of some of the caller's rights.
type GrantRequest struct {
	Role      string   `json:"role,omitempty" doc:"default: the caller's" enum:"viewer,member,admin,operator"`
	Scopes    []string `json:"scopes,omitempty" doc:"default: the caller's" maxItems:"64" items:"^[a-z._]{1,64}$"`
	Sandboxes []string `json:"sandboxes,omitempty" doc:"names of the sandboxes to which the grant is restricted" maxItems:"64" items:"^[a-z0-9][a-z0-9-]{0,62}$"`
	TTLMS     int64    `json:"ttl_ms,omitempty" doc:"default an hour, at most a day" minimum:"0" maximum:"86400000"`
}

// Grant is a token with some of the rights of its creator.
type Grant struct {
	ID        string    `json:"id"`
	Key       string    `json:"key_id" doc:"ID of the key; the token ends with it"`
	Tenant    string    `json:"tenant"`
	Role      string    `json:"role" enum:"viewer,member,admin,operator"`
	Scopes    []string  `json:"scopes,omitempty"`
	Sandboxes []string  `json:"sandboxes,omitempty"`
	Expires   time.Time `json:"expires"`
	Secret    string    `json:"grant" doc:"the token, for use like an API key"`
}

// Quota limits the usage of a tenant. A missing field means unlimited.
type Quota struct {
	Sandboxes        int     `json:"sandboxes,omitempty" doc:"sandboxes at a time, including one-shot runs" minimum:"0"`
	Paused           int     `json:"paused,omitempty" doc:"paused sandboxes and paused copies at a time; default 1000" minimum:"0"`
	Executions       int     `json:"executions,omitempty" doc:"executions at a time: runs, commands, code and processes" minimum:"0"`
	ExecutionsPerDay int64   `json:"executions_per_day,omitempty" minimum:"0"`
	ExecutionMS      int64   `json:"execution_ms_per_day,omitempty" minimum:"0"`
	CPUMS            int64   `json:"cpu_ms_per_day,omitempty" doc:"reserved processor time: the processor limits of sandboxes multiplied by their lifetime" minimum:"0"`
	GiBSeconds       float64 `json:"gib_seconds_per_day,omitempty" doc:"reserved memory: the memory limits of sandboxes multiplied by their lifetime" minimum:"0"`
	Egress           Size    `json:"egress_bytes_per_day,omitempty" minimum:"0"`
	Storage          Size    `json:"storage,omitempty" doc:"sum of the disk limits of running sandboxes" minimum:"0"`
	Workspaces       Size    `json:"workspaces,omitempty" doc:"size of all versions of workspaces; shared content counts once" minimum:"0"`
	Volumes          Size    `json:"volumes,omitempty" doc:"sum of the sizes of volumes; default 100 GiB" minimum:"0"`
	Outputs          Size    `json:"outputs,omitempty" doc:"total size of ended executions and runs, outputs and artifacts included; the server deletes the oldest and rejects nothing; default the server's limit" minimum:"0"`
	Rate             float64 `json:"rate,omitempty" doc:"API calls a second of the whole tenant" minimum:"0"`
	RatePerKey       float64 `json:"rate_per_key,omitempty" doc:"API calls a second per key" minimum:"0"`
}

// Ceilings limit each sandbox of a tenant.
type Ceilings struct {
	Limits      *MostLimits `json:"limits,omitempty" doc:"maximum of each limit"`
	MaxTTLMS    int64       `json:"max_ttl_ms,omitempty" minimum:"0"`
	MaxLifeMS   int64       `json:"max_life_ms,omitempty" minimum:"0"`
	MaxPauseMS  int64       `json:"max_pause_ms,omitempty" doc:"maximum time for which a sandbox stays paused after its last use, or after its last copy; then it ends; applies to later pauses" minimum:"0"`
	TimeoutMS   int64       `json:"max_timeout_ms,omitempty" minimum:"0"`
	Images      []string    `json:"images,omitempty" doc:"names, patterns with * and ?, or digests of the allowed images; default all" items:"^[a-z0-9./:@_*?-]+$"`
	DigestsOnly bool        `json:"digests_only,omitempty" doc:"callers must name images by their digest"`

	Screening *Screening `json:"screening,omitempty" doc:"code to reject, in addition to the server's screening"`
}

// MostLimits are the largest limits of a sandbox. A missing field or 0 means
// unlimited.
type MostLimits struct {
	Memory    Size    `json:"memory,omitempty" doc:"bytes" minimum:"0"`
	CPUs      float64 `json:"cpus,omitempty" minimum:"0"`
	Processes int     `json:"processes,omitempty" minimum:"0"`
	OpenFiles int     `json:"open_files,omitempty" minimum:"0"`
	Disk      Size    `json:"disk,omitempty" doc:"bytes" minimum:"0"`
	Output    Size    `json:"output,omitempty" doc:"bytes" minimum:"0"`
}

// Screening describes which code is rejected because of its source text.
type Screening struct {
	Python     *ScreenRules `json:"python,omitempty" doc:"rules for Python; without rules, Python is rejected unless others is set"`
	JavaScript *ScreenRules `json:"javascript,omitempty" doc:"rules for JavaScript, and for compiled TypeScript"`
	Others     bool         `json:"others,omitempty" doc:"permit languages without rules"`
}

// ScreenRules list forbidden constructs in the sources of one language.
type ScreenRules struct {
	Imports    []string `json:"imports,omitempty" doc:"modules that code may not import" maxItems:"1000" items:"^.{1,256}$"`
	Calls      []string `json:"calls,omitempty" doc:"functions that code may not use: eval, os.system" maxItems:"1000" items:"^.{1,256}$"`
	Attributes []string `json:"attributes,omitempty" doc:"attributes that code may not use" maxItems:"1000" items:"^.{1,256}$"`
	Only       bool     `json:"only,omitempty" doc:"permit only imports in allow, and reject code that cannot be parsed"`
	Allow      []string `json:"allow,omitempty" maxItems:"1000" items:"^.{1,256}$"`
	Commands   bool     `json:"commands,omitempty" doc:"permit IPython commands"`
}

// TenantRequest is the request to create a tenant.
type TenantRequest struct {
	Name     string    `json:"name" doc:"1 to 63 of a-z, 0-9 and -" pattern:"^[a-z0-9][a-z0-9-]{0,62}$"`
	Quota    *Quota    `json:"quota,omitempty" doc:"default: the server's quota for new tenants"`
	Budget   float64   `json:"budget,omitempty" doc:"cost of executions in a calendar month above which an alert fires" minimum:"0"`
	Ceilings *Ceilings `json:"ceilings,omitempty"`
}

// TenantChange changes a tenant's quota, budget and ceilings. Missing fields
// keep their values, even within these objects.
type TenantChange struct {
	Quota    *Quota    `json:"quota,omitempty"`
	Budget   float64   `json:"budget,omitempty" minimum:"0"`
	Ceilings *Ceilings `json:"ceilings,omitempty"`
	// Unscreened removes the tenant's own screening.
	Unscreened bool `json:"unscreened,omitempty" doc:"remove the tenant's screening"`
	// Rev is the revision on which the change is based.
	Rev *int64 `json:"rev,omitempty" doc:"reject the change (409) if the tenant has another revision" minimum:"1" example:"1764000000000000"`
}

// Tenant is a tenant with its quota, budget and ceilings.
type Tenant struct {
	Name     string    `json:"name"`
	Quota    Quota     `json:"quota"`
	Budget   float64   `json:"budget,omitempty"`
	Ceilings Ceilings  `json:"ceilings"`
	Created  time.Time `json:"created,omitzero"`
	Rev      int64     `json:"rev,omitempty" doc:"revision; changes with every change"`
}

// Tenants is a list of tenants.
type Tenants struct {
	Tenants []Tenant `json:"tenants" nullable:"false"`
}

// UsageLine is the usage of a tenant on one day.
type UsageLine struct {
	Tenant     string  `json:"tenant"`
	Day        string  `json:"day"`
	Label      string  `json:"label,omitempty"`
	Value      string  `json:"value,omitempty" doc:"value of the label"`
	Executions int64   `json:"executions"`
	ExecMS     float64 `json:"execution_ms"`
	CPUMS      float64 `json:"cpu_ms" doc:"reserved"`
	GiBSeconds float64 `json:"gib_seconds" doc:"reserved"`
	Egress     int64   `json:"egress_bytes"`
	Stored     int64   `json:"stored_bytes,omitempty" doc:"current size of all versions of workspaces; only in today's total, and only while the store is readable"`
	Cost       float64 `json:"cost,omitempty" doc:"cost of executions, by the rates of their providers"`
}

// Usage is a list of usage lines.
type Usage struct {
	Usage []UsageLine `json:"usage" nullable:"false"`
}

// Domain converts k to its domain type.
func (k KeyRequest) Domain() (brig.KeySpec, error) {
	role, err := brig.ParseRole(k.Role)
	return brig.KeySpec{Name: k.Name, Tenant: k.Tenant, Role: role, Scopes: k.Scopes, TTL: ToDuration(k.TTLMS), Kind: brig.KeyKind(k.Kind)}, err
}

// FromKeySpec converts k to its wire type.
func FromKeySpec(k brig.KeySpec) KeyRequest {
	return KeyRequest{Name: k.Name, Tenant: k.Tenant, Role: k.Role.String(), Scopes: k.Scopes, TTLMS: FromDuration(k.TTL), Kind: string(k.Kind)}
}

// FromKey converts k to its wire type.
func FromKey(k *brig.Key) Key {
	return Key{
		ID: k.ID, Name: k.Actor.Name, Tenant: k.Actor.Tenant, Role: k.Actor.Role.String(), Scopes: k.Actor.Scopes,
		Kind: string(k.Kind), Prefix: k.Prefix, Created: k.Created, Expires: k.Actor.Expires, Used: k.Used,
	}
}

// Domain converts k to its domain type.
func (k Key) Domain() *brig.Key {
	role, _ := brig.ParseRole(k.Role) // a role that only newer servers support becomes brig.Nobody
	return &brig.Key{
		ID: k.ID, Kind: brig.KeyKind(k.Kind), Prefix: k.Prefix, Created: k.Created, Used: k.Used,
		Actor: brig.Actor{Name: k.Name, Tenant: k.Tenant, Role: role, Key: k.ID, Scopes: k.Scopes, Expires: k.Expires},
	}
}

// Domain converts g to its domain type.
func (g GrantRequest) Domain() (spec brig.GrantSpec, err error) {
	if g.Role != "" {
		spec.Role, err = brig.ParseRole(g.Role)
	}
	spec.Scopes, spec.Sandboxes, spec.TTL = g.Scopes, g.Sandboxes, ToDuration(g.TTLMS)
	return spec, err
}

// FromGrantSpec converts g to its wire type.
func FromGrantSpec(g brig.GrantSpec) GrantRequest {
	out := GrantRequest{Scopes: g.Scopes, Sandboxes: g.Sandboxes, TTLMS: FromDuration(g.TTL)}
	if g.Role != brig.Nobody {
		out.Role = g.Role.String()
	}
	return out
}

// FromGrant converts g to its wire type.
func FromGrant(g *brig.NewGrant) Grant {
	a := g.Actor
	return Grant{
		ID: a.Grant, Key: a.Key, Tenant: a.Tenant, Role: a.Role.String(), Scopes: a.Scopes, Sandboxes: a.Sandboxes,
		Expires: a.Expires, Secret: g.Secret,
	}
}

// Domain converts g to its domain type.
func (g Grant) Domain() *brig.NewGrant {
	role, _ := brig.ParseRole(g.Role) // a role that only newer servers support becomes brig.Nobody
	return &brig.NewGrant{Secret: g.Secret, Actor: brig.Actor{
		Tenant: g.Tenant, Role: role, Key: g.Key, Grant: g.ID, Scopes: g.Scopes, Sandboxes: g.Sandboxes, Expires: g.Expires,
	}}
}

// Domain converts q to its domain type. It returns a quota without limits for
// nil.
func (q *Quota) Domain() brig.Quota {
	if q == nil {
		return brig.Quota{}
	}
	return brig.Quota{
		Sandboxes: q.Sandboxes, Paused: q.Paused, Executions: q.Executions, ExecutionsPerDay: q.ExecutionsPerDay,
		ExecutionTimePerDay: ToDuration(q.ExecutionMS), CPUTimePerDay: ToDuration(q.CPUMS), MemoryPerDay: q.GiBSeconds,
		EgressPerDay: int64(q.Egress), Storage: int64(q.Storage), Workspaces: int64(q.Workspaces), Volumes: int64(q.Volumes), Outputs: int64(q.Outputs), Rate: q.Rate, RatePerKey: q.RatePerKey,
	}
}

// FromQuota converts q to its wire type.
func FromQuota(q brig.Quota) Quota {
	return Quota{
		Sandboxes: q.Sandboxes, Paused: q.Paused, Executions: q.Executions, ExecutionsPerDay: q.ExecutionsPerDay,
		ExecutionMS: q.ExecutionTimePerDay.Milliseconds(), CPUMS: q.CPUTimePerDay.Milliseconds(), GiBSeconds: q.MemoryPerDay,
		Egress: Size(q.EgressPerDay), Storage: Size(q.Storage), Workspaces: Size(q.Workspaces), Volumes: Size(q.Volumes), Outputs: Size(q.Outputs), Rate: q.Rate, RatePerKey: q.RatePerKey,
	}
}

// Domain converts c to its domain type. It returns empty ceilings for nil.
func (c *Ceilings) Domain() brig.Ceilings {
	if c == nil {
		return brig.Ceilings{}
	}
	out := brig.Ceilings{
		MaxTTL: ToDuration(c.MaxTTLMS), MaxLife: ToDuration(c.MaxLifeMS), MaxPause: ToDuration(c.MaxPauseMS), MaxTimeout: ToDuration(c.TimeoutMS), Images: c.Images, DigestsOnly: c.DigestsOnly,
		Screening: c.Screening.toScreening(),
	}
	if l := c.Limits; l != nil {
		out.Limits = brig.Limits{
			Memory: int64(l.Memory), CPUs: l.CPUs, Processes: l.Processes, OpenFiles: l.OpenFiles, Disk: int64(l.Disk), Output: int64(l.Output),
		}
	}
	return out
}

// FromCeilings converts c to its wire type.
func FromCeilings(c brig.Ceilings) Ceilings {
	out := Ceilings{
		MaxTTLMS: c.MaxTTL.Milliseconds(), MaxLifeMS: c.MaxLife.Milliseconds(),
		MaxPauseMS: c.MaxPause.Milliseconds(), TimeoutMS: c.MaxTimeout.Milliseconds(),
		Images: c.Images, DigestsOnly: c.DigestsOnly, Screening: fromScreening(c.Screening),
	}
	if l := c.Limits; l != (brig.Limits{}) {
		out.Limits = &MostLimits{
			Memory: Size(l.Memory), CPUs: l.CPUs, Processes: l.Processes, OpenFiles: l.OpenFiles, Disk: Size(l.Disk), Output: Size(l.Output),
		}
	}
	return out
}

// FromTenant converts t to its wire type.
func FromTenant(t *brig.Tenant) Tenant {
	return Tenant{Name: t.Name, Budget: t.Budget, Quota: FromQuota(t.Quota), Ceilings: FromCeilings(t.Ceilings), Created: t.Created, Rev: t.Rev}
}

// Domain converts t to its domain type.
func (t Tenant) Domain() *brig.Tenant {
	return &brig.Tenant{Name: t.Name, Budget: t.Budget, Quota: t.Quota.Domain(), Ceilings: t.Ceilings.Domain(), Created: t.Created, Rev: t.Rev}
}

// FromUsage converts lines to their wire type.
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

// Domain converts u to its domain type.
func (u Usage) Domain() (out []brig.UsageLine) {
	for _, l := range u.Usage {
		out = append(out, brig.UsageLine{Tenant: l.Tenant, Day: l.Day, Label: l.Label, Value: l.Value, Stored: l.Stored, UsageTotals: brig.UsageTotals{
			Executions: l.Executions, ExecutionTime: FromMillis(l.ExecMS), CPUTime: FromMillis(l.CPUMS), Memory: l.GiBSeconds, Egress: l.Egress, Cost: l.Cost,
		}})
	}
	return out
}

func (s *Screening) toScreening() *brig.Screening {
	if s == nil {
		return nil
	}
	out := &brig.Screening{Others: s.Others, Rules: map[brig.Language]brig.ScreenRules{}}
	for lang, r := range map[brig.Language]*ScreenRules{brig.Python: s.Python, brig.JavaScript: s.JavaScript} {
		if r != nil {
			out.Rules[lang] = brig.ScreenRules{
				Imports: r.Imports, Calls: r.Calls, Attributes: r.Attributes, Only: r.Only, Allow: r.Allow, Commands: r.Commands,
			}
		}
	}
	return out
}

func fromScreening(s *brig.Screening) *Screening {
	if s == nil {
		return nil
	}
	out := &Screening{Others: s.Others}
	for lang, to := range map[brig.Language]**ScreenRules{brig.Python: &out.Python, brig.JavaScript: &out.JavaScript} {
		if r, ok := s.Rules[lang]; ok {
			*to = &ScreenRules{
				Imports: r.Imports, Calls: r.Calls, Attributes: r.Attributes, Only: r.Only, Allow: r.Allow, Commands: r.Commands,
			}
		}
	}
	return out
}
