package signin

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func TestMappingDeterminesTenantAndRole(t *testing.T) {
	roles := RoleRule{Claim: "groups", Values: map[string]brig.Role{"dev": brig.Member, "ops": brig.Admin, "out": brig.Nobody}}
	for name, c := range map[string]struct {
		m      Mapping
		p      brig.Person
		tenant string
		role   brig.Role
	}{
		"the strongest role":      {Mapping{Tenant: TenantRule{Default: "acme"}, Role: roles}, brig.Person{Claims: map[string][]string{"groups": {"dev", "ops", "x"}}}, "acme", brig.Admin},
		"no role":                 {Mapping{Tenant: TenantRule{Default: "acme"}, Role: roles}, brig.Person{Claims: map[string][]string{"groups": {"x"}}}, "", 0},
		"an invalid role":         {Mapping{Tenant: TenantRule{Default: "acme"}, Role: roles}, brig.Person{Claims: map[string][]string{"groups": {"out"}}}, "", 0},
		"nothing said":            {Mapping{Tenant: TenantRule{Default: "acme"}, Role: roles}, brig.Person{}, "", 0},
		"the default role":        {Mapping{Tenant: TenantRule{Default: "acme"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{}, "acme", brig.Viewer},
		"a claim's tenant":        {Mapping{Tenant: TenantRule{Claim: "org"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Claims: map[string][]string{"org": {"rival"}}}, "rival", brig.Viewer},
		"an invalid tenant name":  {Mapping{Tenant: TenantRule{Claim: "org"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Claims: map[string][]string{"org": {"../x"}}}, "", 0},
		"all tenants":             {Mapping{Tenant: TenantRule{Claim: "org"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Claims: map[string][]string{"org": {"*"}}}, "", 0},
		"a tenant by its value":   {Mapping{Tenant: TenantRule{Claim: "org", Values: map[string]string{"Acme Inc": "acme"}}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Claims: map[string][]string{"org": {"Acme Inc"}}}, "acme", brig.Viewer},
		"a value that is unknown": {Mapping{Tenant: TenantRule{Claim: "org", Values: map[string]string{"Acme Inc": "acme"}}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Claims: map[string][]string{"org": {"acme"}}}, "", 0},
		"two tenants":             {Mapping{Tenant: TenantRule{Claim: "org"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Claims: map[string][]string{"org": {"acme", "rival"}}}, "", 0},
		"the domain":              {Mapping{Domains: []string{"example.com"}, Tenant: TenantRule{Default: "acme"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Email: "a@example.com"}, "acme", brig.Viewer},
		"below the domain":        {Mapping{Domains: []string{"example.com"}, Tenant: TenantRule{Default: "acme"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{Email: "a@x.example.com"}, "", 0},
		"not an address":          {Mapping{Domains: []string{"example.com"}, Tenant: TenantRule{Default: "acme"}, Role: RoleRule{Default: brig.Viewer}}, brig.Person{}, "", 0},
	} {
		a, err := c.m.actor(&c.p)
		if c.role == brig.Nobody {
			if brig.KindOf(err) != brig.Unauthenticated || a.Role != brig.Nobody {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
			continue
		}
		if err != nil || a.Tenant != c.tenant || a.Role != c.role || a.Person != &c.p {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestInvalidMappingIsRejected(t *testing.T) {
	good := Mapping{Tenant: TenantRule{Default: "acme"}, Role: RoleRule{Default: brig.Viewer}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Mapping){
		"oidc.domains":        func(m *Mapping) { m.Domains = []string{"*.example.com"} },
		"oidc.tenant":         func(m *Mapping) { m.Tenant.Default = "" },
		"oidc.tenant.default": func(m *Mapping) { m.Tenant.Default = "A B" },
		"oidc.tenant.values":  func(m *Mapping) { m.Tenant.Values = map[string]string{"x": "*"} },
		"oidc.role":           func(m *Mapping) { m.Role = RoleRule{Claim: "groups", Default: brig.Viewer} },
	} {
		m := good
		change(&m)
		if e := brig.AsError(m.Check()); e == nil || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %v", field, e)
		}
	}
}

func TestClaimsAreReadByPath(t *testing.T) {
	var c claims
	err := json.Unmarshal([]byte(`{"one":"a","list":["a",1,null,"b"],"n":7,"o":{"roles":["x"],"p":{"q":"y"}},"https://x.y/groups":["z"],"o.roles.no":1,
		"email":"Ann@Example.com","email_verified":true}`), &c)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"one": {"a"}, "list": {"a", "b"}, "n": nil, "none": nil, "": nil, "o": nil, "o.roles": {"x"}, "o.p.q": {"y"}, "o.none": nil,
		"https://x.y/groups": {"z"}, "email": {"ann@example.com"}, "one.two": nil,
	} {
		if got := c.stringValues(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for text, want := range map[string]string{
		`{"email":"a@b.c","email_verified":true}`: "a@b.c", `{"email":"a@b.c","email_verified":"true"}`: "a@b.c",
		`{"email":"a@b.c"}`: "", `{"email":"a@b.c","email_verified":false}`: "", `{"email":"a@b.c","email_verified":1}`: "",
		`{"email":"a@b@c","email_verified":true}`: "", `{"email":"@b","email_verified":true}`: "", `{"email":7,"email_verified":true}`: "",
		`{"email":"a b@c","email_verified":true}`: "",
	} {
		var c claims
		if err := json.Unmarshal([]byte(text), &c); err != nil || c.email() != want {
			t.Errorf("%s: %q, want %q", text, c.email(), want)
		}
	}
	// The verification in one source does not apply to an address from another.
	c = claims{"email": json.RawMessage(`"evil@example.com"`)}
	c.fill(claims{"email": json.RawMessage(`"good@example.com"`), "email_verified": json.RawMessage("true"), "groups": json.RawMessage(`["x"]`)})
	if c.email() != "" || len(c.stringValues("groups")) != 1 {
		t.Errorf("filled up: %s", c)
	}
}

// FuzzToken checks that arbitrary input is validated before the provider's keys
// are used, and that it is never accepted.
func FuzzToken(f *testing.F) {
	f.Add("eyJhbGciOiJSUzI1NiJ9.e30.x")
	f.Add("eyJ.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		if isPlausible(token) {
			s := &keySet{now: time.Now, triedAt: time.Now()}
			if _, err := s.VerifySignature(t.Context(), token); err == nil {
				t.Errorf("%q is believed", token)
			}
		}
	})
}
