package wire

import (
	"time"

	"github.com/brig-run/brig"
)

// SecretRequest makes a secret, or gives it another value.
type SecretRequest struct {
	Value     *string  `json:"value,omitempty" doc:"told once and never again; one of value and value_b64"`
	ValueB64  []byte   `json:"value_b64,omitempty" doc:"the value, if it is not text"`
	Hosts     []string `json:"hosts,omitempty" doc:"it never enters a sandbox, and is put only into requests to these (api.example.com, *.example.com); without any it is handed to sandboxes"`
	Places    []string `json:"places,omitempty" doc:"of a request: header (the default), query, body"`
	Exclusive bool     `json:"exclusive,omitempty" doc:"requests to these hosts with other credentials are refused"`
	Plain     bool     `json:"plain,omitempty" doc:"the value may go to these hosts in clear HTTP; otherwise requests that would take it there are refused"`
}

// Secret is what may be known of one. The value may not.
type Secret struct {
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts" nullable:"false"`
	Places    []string  `json:"places" nullable:"false"`
	Exclusive bool      `json:"exclusive"`
	Plain     bool      `json:"plain,omitempty"`
	Version   int       `json:"version" doc:"counts the values that it has had"`
	Created   time.Time `json:"created"`
	Updated   time.Time `json:"updated"`
}

// Secrets is every secret of a tenant.
type Secrets struct {
	Secrets []Secret `json:"secrets" nullable:"false"`
}

// Resealed says how many secrets were encrypted anew.
type Resealed struct {
	Secrets int `json:"secrets"`
}

// FromSecret returns the form of s.
func FromSecret(s *brig.Secret) Secret {
	out := Secret{
		Name: s.Name, Hosts: []string{}, Places: fromPlaces(s.Places), Exclusive: s.Exclusive, Plain: s.Plain,
		Version: s.Version, Created: s.Created, Updated: s.Updated,
	}
	out.Hosts = append(out.Hosts, s.Hosts...)
	return out
}

// Noun returns the secret that s is the form of.
func (s Secret) Noun() *brig.Secret {
	return &brig.Secret{
		Name: s.Name, Hosts: s.Hosts, Places: toPlaces(s.Places), Exclusive: s.Exclusive, Plain: s.Plain,
		Version: s.Version, Created: s.Created, Updated: s.Updated,
	}
}

// NewSecretRequest returns the form of what asks for s.
func NewSecretRequest(s brig.Secret, value []byte) SecretRequest {
	return SecretRequest{ValueB64: value, Hosts: s.Hosts, Places: fromPlaces(s.Places), Exclusive: s.Exclusive, Plain: s.Plain}
}

// Noun returns the secret of that name which r asks for, and its value.
func (r SecretRequest) Noun(name string) (brig.Secret, []byte, error) {
	s := brig.Secret{Name: name, Hosts: r.Hosts, Places: toPlaces(r.Places), Exclusive: r.Exclusive, Plain: r.Plain}
	if r.Value == nil {
		return s, r.ValueB64, nil
	}
	if r.ValueB64 != nil {
		return s, nil, brig.InvalidField("value_b64", "is given beside value").WithHint("give one of the two")
	}
	return s, []byte(*r.Value), nil
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
