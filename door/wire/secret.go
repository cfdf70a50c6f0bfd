package wire

import (
	"time"

	"github.com/brig-run/brig"
)

// SecretRequest makes a secret, or changes one. A field that is absent stays as
// it is.
type SecretRequest struct {
	Value     *string  `json:"value,omitempty" doc:"told once and never again; one of value and value_b64, required of a new secret"`
	ValueB64  []byte   `json:"value_b64,omitzero" doc:"the value, if it is not text"`
	Hosts     []string `json:"hosts,omitzero" doc:"it never enters a sandbox, and is put only into requests to these (api.example.com, *.example.com); without any it is handed to sandboxes"`
	Places    []string `json:"places,omitzero" doc:"of a request: header (the default), query, body"`
	Exclusive *bool    `json:"exclusive,omitempty" doc:"requests to these hosts with other credentials are refused"`
	Plain     *bool    `json:"plain,omitempty" doc:"the value may go to these hosts in clear HTTP; otherwise requests that would take it there are refused"`
	Reveal    bool     `json:"reveal,omitempty" doc:"required to take all hosts from a secret (hosts is []): sandboxes see its value from then on"`
}

// Secret is what may be known of one. The value may not.
type Secret struct {
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts" nullable:"false"`
	Places    []string  `json:"places" nullable:"false"`
	Exclusive bool      `json:"exclusive"`
	Plain     bool      `json:"plain,omitempty"`
	Version   int       `json:"version" doc:"counts its changes"`
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

// NewSecretRequest returns the form of c.
func NewSecretRequest(c brig.SecretChange) SecretRequest {
	r := SecretRequest{ValueB64: c.Value, Hosts: c.Hosts, Exclusive: c.Exclusive, Plain: c.Plain, Reveal: c.Reveal}
	if c.Places != nil {
		r.Places = fromPlaces(c.Places)
	}
	return r
}

// Noun returns the change of the secret of that name which r asks for.
func (r SecretRequest) Noun(name string) (brig.SecretChange, error) {
	c := brig.SecretChange{Name: name, Value: r.ValueB64, Hosts: r.Hosts, Exclusive: r.Exclusive, Plain: r.Plain, Reveal: r.Reveal}
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
