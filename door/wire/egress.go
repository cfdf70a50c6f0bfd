package wire

import "github.com/brig-run/brig"

// Egress says where a sandbox may connect to. Without rules, nowhere.
type Egress struct {
	Rules     []EgressRule `json:"rules" nullable:"false" doc:"looked at in order; the first that matches decides, and what none matches is denied"`
	Bandwidth Size         `json:"bandwidth,omitempty" doc:"bytes per second in each direction; default no bound"`
}

// EgressRule matches connections, by host or by cidr.
type EgressRule struct {
	Deny    bool     `json:"deny,omitempty" doc:"refuse what matches, instead of allowing it"`
	Host    string   `json:"host,omitempty" doc:"a name (api.example.com), or any name below one (*.example.com)"`
	CIDR    string   `json:"cidr,omitempty" doc:"a network (192.0.2.0/24) or an address"`
	Ports   []int    `json:"ports,omitempty" doc:"default every port"`
	Methods []string `json:"methods,omitempty" doc:"with a host: HTTP requests with these methods only (GET)"`
	Paths   []string `json:"paths,omitempty" doc:"with a host: HTTP requests of these paths only; one that ends in * is a prefix"`
}

// SecretUse gives a sandbox a secret as a variable.
type SecretUse struct {
	Name string `json:"name" doc:"the secret's name"`
	Env  string `json:"env,omitempty" doc:"the variable; default the name in capitals, with _ for -"`
}

// FromEgress returns the form of e; nil for none.
func FromEgress(e brig.Egress) *Egress {
	if len(e.Rules) == 0 && e.Bandwidth == 0 {
		return nil
	}
	out := &Egress{Rules: []EgressRule{}, Bandwidth: Size(e.Bandwidth)}
	for _, r := range e.Rules {
		out.Rules = append(out.Rules, EgressRule(r))
	}
	return out
}

// Noun returns what the form means; nil means nowhere.
func (e *Egress) Noun() brig.Egress {
	if e == nil {
		return brig.Egress{}
	}
	out := brig.Egress{Bandwidth: int64(e.Bandwidth)}
	for _, r := range e.Rules {
		out.Rules = append(out.Rules, brig.EgressRule(r))
	}
	return out
}

// FromSecrets returns the form of what a sandbox is given.
func FromSecrets(list []brig.SecretUse) []SecretUse {
	var out []SecretUse
	for _, s := range list {
		out = append(out, SecretUse(s))
	}
	return out
}

// ToSecrets is FromSecrets the other way.
func ToSecrets(list []SecretUse) []brig.SecretUse {
	var out []brig.SecretUse
	for _, s := range list {
		out = append(out, brig.SecretUse(s))
	}
	return out
}
