package signin

import (
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// Mapping maps the provider's users to tenants and roles. A user without a matching rule has no
// role.
type Mapping struct {
	// Domains are the allowed domains of email addresses. If empty, every domain
	// is allowed and no address is required.
	Domains []string
	// Tenant determines a user's tenant.
	Tenant TenantRule
	// Role determines a user's role.
	Role RoleRule
}

// TenantRule determines a user's tenant.
type TenantRule struct {
	// Claim is the claim with the tenant. Values maps its values to tenants; if
	// nil, the values are the tenants.
	Claim  string
	Values map[string]string
	// Default is the tenant of users without the claim; empty means none.
	Default string
}

// RoleRule determines a role: the highest of the roles to which the user's
// values are mapped.
type RoleRule struct {
	Claim  string
	Values map[string]brig.Role
	// Default is the role of users whose values map to no role; the zero role is
	// no access.
	Default brig.Role
}

// readMapping returns the operator's current mapping, or an error if it cannot be read.
func (p *Provider) readMapping() (*Mapping, error) {
	m, err := p.Mapping()
	if err != nil {
		// An outdated mapping could admit a user who has lost access.
		return nil, brig.Errorf(brig.Unavailable, "the sign-in rules cannot be read").WithHint("the operator finds the reason in the server's log").Because(err)
	}
	return m, nil
}

// Actor implements the engine's People: it returns a user's current rights.
func (p *Provider) Actor(person *brig.Person) (brig.Actor, error) {
	m, err := p.readMapping()
	if err != nil {
		return brig.Actor{}, err
	}
	if person.Issuer != p.Issuer {
		return brig.Actor{}, errNoAccess(person, "signed in elsewhere")
	}
	return m.actor(person)
}

func errNoAccess(p *brig.Person, reason string) error {
	return brig.Errorf(brig.Unauthenticated, "%s may not sign in: %s", brig.Clip(p.Name(), 80), reason).
		WithHint("ask the operator for a role")
}

func (m *Mapping) actor(p *brig.Person) (brig.Actor, error) {
	var none brig.Actor
	if len(m.Domains) > 0 {
		_, domain, _ := strings.Cut(p.Email, "@")
		if !slices.Contains(m.Domains, domain) {
			return none, errNoAccess(p, "the address is not of a domain that may")
		}
	}
	tenant, ok := m.Tenant.findTenant(p)
	if !ok {
		return none, errNoAccess(p, "the tenant is not clear")
	}
	a := brig.Actor{Name: p.Name(), Tenant: tenant, Role: m.Role.Default, Person: p}
	for _, v := range p.Claims[m.Role.Claim] {
		a.Role = max(a.Role, m.Role.Values[v])
	}
	if a.Role == brig.Nobody {
		return none, errNoAccess(p, "there is no role")
	}
	return a, nil
}

// findTenant returns a user's tenant, if there is exactly one.
func (r TenantRule) findTenant(p *brig.Person) (string, bool) {
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

// Check returns an error for an invalid mapping.
func (m *Mapping) Check() error {
	for _, d := range m.Domains {
		if d == "" || d != toASCIILower(d) || strings.ContainsAny(d, "@* /") {
			return configError("oidc.domains", "%q is no domain", brig.Clip(d, 80)).WithHint("write it as example.com; one below it is another")
		}
	}
	if m.Tenant.Claim == "" && m.Tenant.Default == "" {
		return configError("oidc.tenant", "it says nothing").WithHint("give a claim, or a default")
	}
	if m.Tenant.Default != "" && !brig.ValidName(m.Tenant.Default) {
		return configError("oidc.tenant.default", "%q is no tenant's name", brig.Clip(m.Tenant.Default, 80)).WithHint("names are 1 to 63 of a-z, 0-9 and -")
	}
	for v, t := range m.Tenant.Values {
		if !brig.ValidName(t) {
			return configError("oidc.tenant.values", "%q is no tenant's name, for %q", brig.Clip(t, 80), brig.Clip(v, 80)).WithHint("names are 1 to 63 of a-z, 0-9 and -")
		}
	}
	if m.Role.Claim == "" && m.Role.Default == brig.Nobody {
		return configError("oidc.role", "it says nothing").WithHint("give a claim with values, or a default")
	}
	if (m.Role.Claim == "") != (len(m.Role.Values) == 0) {
		return configError("oidc.role", "claim and values belong together").WithHint("for example {claim: groups, values: {developers: member}}")
	}
	return nil
}
