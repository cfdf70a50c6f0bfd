package signin

import (
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// Mapping says who of a provider's people is whom here. Whom it does not speak
// of has no role.
type Mapping struct {
	// Domains are the only ones of which addresses may be; empty is all,
	// and then none is needed.
	Domains []string
	// Tenant is whose somebody is.
	Tenant TenantRule
	// Role is what they may do.
	Role RoleRule
}

// TenantRule finds a tenant.
type TenantRule struct {
	// Claim has it: its values by Values, or as they are where that is nil.
	Claim  string
	Values map[string]string
	// Default is the tenant of those whose claim says nothing; empty is none.
	Default string
}

// RoleRule finds a role: the highest of those of somebody's values.
type RoleRule struct {
	Claim  string
	Values map[string]brig.Role
	// Default is the role of those whose values say nothing; Nobody is none.
	Default brig.Role
}

// mapping is the operator's, as it is now.
func (p *Provider) mapping() (*Mapping, error) {
	m, err := p.Mapping()
	if err != nil {
		// Who may not any more must not be let in by what was.
		return nil, brig.Errorf(brig.Unavailable, "who may sign in cannot be read").WithHint("the operator finds the reason in the server's log").Because(err)
	}
	return m, nil
}

// Actor implements what the engine asks of people: what somebody may do now.
func (p *Provider) Actor(person *brig.Person) (brig.Actor, error) {
	m, err := p.mapping()
	if err != nil {
		return brig.Actor{}, err
	}
	if person.Issuer != p.Issuer {
		return brig.Actor{}, stranger(person, "signed in elsewhere")
	}
	return m.actor(person)
}

func stranger(p *brig.Person, why string) error {
	return brig.Errorf(brig.Unauthenticated, "%s has no access here: %s", brig.Clip(p.Name(), 80), why).
		WithHint("ask the operator for a role")
}

func (m *Mapping) actor(p *brig.Person) (brig.Actor, error) {
	var none brig.Actor
	if len(m.Domains) > 0 {
		_, domain, _ := strings.Cut(p.Email, "@")
		if !slices.Contains(m.Domains, domain) {
			return none, stranger(p, "the address is not of a domain that may")
		}
	}
	tenant, ok := m.Tenant.of(p)
	if !ok {
		return none, stranger(p, "the tenant is not clear")
	}
	a := brig.Actor{Name: p.Name(), Tenant: tenant, Role: m.Role.Default, Person: p}
	for _, v := range p.Claims[m.Role.Claim] {
		a.Role = max(a.Role, m.Role.Values[v])
	}
	if a.Role == brig.Nobody {
		return none, stranger(p, "there is no role")
	}
	return a, nil
}

// of finds somebody's tenant, if there is exactly one.
func (r TenantRule) of(p *brig.Person) (string, bool) {
	found := map[string]bool{}
	for _, v := range p.Claims[r.Claim] {
		if r.Values == nil {
			found[v] = true
		} else if t, ok := r.Values[v]; ok {
			found[t] = true
		}
	}
	if len(found) == 0 && r.Default != "" {
		return r.Default, true
	}
	for t := range found {
		return t, len(found) == 1 && brig.ValidName(t)
	}
	return "", false
}

// Check refuses a mapping that means nothing.
func (m *Mapping) Check() error {
	for _, d := range m.Domains {
		if d == "" || d != strings.ToLower(d) || strings.ContainsAny(d, "@* /") {
			return wrong("oidc.domains", "%q is no domain", brig.Clip(d, 80)).WithHint("write it as example.com; one below it is another")
		}
	}
	if m.Tenant.Claim == "" && m.Tenant.Default == "" {
		return wrong("oidc.tenant", "it says nothing").WithHint("give a claim, or a default")
	}
	if m.Tenant.Default != "" && !brig.ValidName(m.Tenant.Default) {
		return wrong("oidc.tenant.default", "%q is no tenant's name", brig.Clip(m.Tenant.Default, 80)).WithHint("names are 1 to 63 of a-z, 0-9 and -")
	}
	for v, t := range m.Tenant.Values {
		if !brig.ValidName(t) {
			return wrong("oidc.tenant.values", "%q is no tenant's name, for %q", brig.Clip(t, 80), brig.Clip(v, 80)).WithHint("names are 1 to 63 of a-z, 0-9 and -")
		}
	}
	if m.Role.Claim == "" && m.Role.Default == brig.Nobody {
		return wrong("oidc.role", "it says nothing").WithHint("give a claim with values, or a default")
	}
	if (m.Role.Claim == "") != (len(m.Role.Values) == 0) {
		return wrong("oidc.role", "claim and values belong together").WithHint("for example {claim: groups, values: {developers: member}}")
	}
	return nil
}
