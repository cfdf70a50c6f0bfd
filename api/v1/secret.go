package v1

import (
	"time"

	"github.com/brig-run/brig"
)

// SecretRequest is the request to create or change a secret. Missing fields
// keep their values. A change that allows the value to reach more destinations
// requires the value.
type SecretRequest struct {
	Value     *string  `json:"value,omitempty" doc:"the value, which is never returned; a new secret needs value or value_b64, and so does a change that lets the value go further: other hosts or none, further places or names in allow, plain, exclusive off" minLength:"1" maxLength:"65536" pattern:"^[^\\x00]*$"`
	ValueB64  []byte   `json:"value_b64,omitzero" doc:"the value, if it is not text"`
	Hosts     []string `json:"hosts,omitzero" doc:"hosts to which the proxy sends the secret (api.example.com, *.example.com), which then never enters a sandbox; without hosts, sandboxes receive the value" maxItems:"50" items:"^(?:\\*\\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\\.)*(?:[1-9][0-9-]*)?[a-z_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$"`
	Places    []string `json:"places,omitzero" doc:"parts of a request that may contain it: header (the default), query, body" enum:"header,query,body"`
	Exclusive *bool    `json:"exclusive,omitempty" doc:"reject requests to these hosts with header fields or query parameters that can carry other credentials"`
	Allow     []string `json:"allow,omitzero" doc:"exceptions of exclusive: header fields (X-Tenant), query parameters with a question mark (?region), and users of basic credentials whose password is the placeholder (user:me@example.com); * at the end matches any rest"`
	Plain     *bool    `json:"plain,omitempty" doc:"allow plain HTTP to these hosts; otherwise such requests are rejected"`
	Reveal    bool     `json:"reveal,omitempty" doc:"required to remove all hosts of a secret (hosts is []), because sandboxes then see its value"`
}

// Secret is the description of a secret without its value.
type Secret struct {
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts" nullable:"false"`
	Places    []string  `json:"places" nullable:"false"`
	Exclusive bool      `json:"exclusive"`
	Allow     []string  `json:"allow,omitempty"`
	Plain     bool      `json:"plain,omitempty"`
	Version   int       `json:"version" doc:"number of changes"`
	Created   time.Time `json:"created"`
	Updated   time.Time `json:"updated"`
}

// Secrets is the list of a tenant's secrets.
type Secrets struct {
	Secrets []Secret `json:"secrets" nullable:"false"`
}

// Resealed is the number of secrets that were encrypted again.
type Resealed struct {
	Secrets int `json:"secrets"`
}

// FromSecret converts s to its wire type.
func FromSecret(s *brig.Secret) Secret {
	out := Secret{
		Name: s.Name, Hosts: []string{}, Places: fromPlaces(s.Places), Exclusive: s.Exclusive, Allow: s.Allow, Plain: s.Plain,
		Version: s.Version, Created: s.Created, Updated: s.Updated,
	}
	out.Hosts = append(out.Hosts, s.Hosts...)
	return out
}

// Domain converts s to its domain type.
func (s Secret) Domain() *brig.Secret {
	return &brig.Secret{
		Name: s.Name, Hosts: s.Hosts, Places: toPlaces(s.Places), Exclusive: s.Exclusive, Allow: s.Allow, Plain: s.Plain,
		Version: s.Version, Created: s.Created, Updated: s.Updated,
	}
}

// NewSecretRequest converts c to its wire type.
func NewSecretRequest(c brig.SecretChange) SecretRequest {
	r := SecretRequest{ValueB64: c.Value, Hosts: c.Hosts, Allow: c.Allow, Exclusive: c.Exclusive, Plain: c.Plain, Reveal: c.Reveal}
	if c.Places != nil {
		r.Places = fromPlaces(c.Places)
	}
	return r
}

// Domain converts r to a change of the named secret.
func (r SecretRequest) Domain(name string) (brig.SecretChange, error) {
	c := brig.SecretChange{Name: name, Value: r.ValueB64, Hosts: r.Hosts, Allow: r.Allow, Exclusive: r.Exclusive, Plain: r.Plain, Reveal: r.Reveal}
	if r.Places != nil {
		c.Places = append([]brig.SecretPlace{}, toPlaces(r.Places)...)
	}
	if r.Value != nil {
		if r.ValueB64 != nil {
			return c, brig.InvalidField("value_b64", "is given beside value").WithHint("give one of the two")
		}
		c.Value = []byte(*r.Value)
	}
	return c, nil
}

func fromPlaces(list []brig.SecretPlace) []string {
	out := []string{}
	for _, p := range list {
		out = append(out, string(p))
	}
	return out
}

func toPlaces(list []string) []brig.SecretPlace {
	var out []brig.SecretPlace
	for _, p := range list {
		out = append(out, brig.SecretPlace(p))
	}
	return out
}
