package v1

import "github.com/brig-run/brig"

// Egress lists the allowed connections of a sandbox. Without rules no
// connection is allowed.
type Egress struct {
	Rules     []EgressRule `json:"rules" nullable:"false" doc:"evaluated in order; the first matching rule decides, and everything else is denied" maxItems:"200"`
	Bandwidth Size         `json:"bandwidth,omitempty" doc:"bytes per second in each direction; default unlimited" minimum:"0"`
}

// EgressChange changes the egress of a sandbox. Missing fields keep their
// values. Rules are replaced as a whole, and an empty list allows no
// connections.
type EgressChange struct {
	Rules     []EgressRule `json:"rules" nullable:"false" doc:"all of them, in order; the first that matches decides, and what none matches is denied" maxItems:"200"`
	Bandwidth *Size        `json:"bandwidth,omitempty" doc:"bytes per second in each direction; 0 is unlimited; if omitted, it stays unchanged" minimum:"0"`
}

// EgressRule matches connections, by host or CIDR.
type EgressRule struct {
	Deny    bool     `json:"deny,omitempty" doc:"deny matching connections instead of allowing them"`
	Host    string   `json:"host,omitempty" doc:"a host name (api.example.com), or all names below one (*.example.com)" maxLength:"253" pattern:"^(?:\\*|(?:\\*\\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\\.)*(?:[1-9][0-9-]*)?[a-z_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)$"`
	CIDR    string   `json:"cidr,omitempty" doc:"a network (192.0.2.0/24) or an address" maxLength:"49" pattern:"^[0-9a-fA-F.:/]+$"`
	Ports   []int    `json:"ports,omitempty" doc:"default all ports" maxItems:"50" minimum:"1" maximum:"65535"`
	Methods []string `json:"methods,omitempty" doc:"with host: only HTTP requests with these methods (GET)" maxItems:"50" items:"^[A-Z_-]{1,32}$"`
	Paths   []string `json:"paths,omitempty" doc:"with host: only HTTP requests for these paths; a path that ends in * is a prefix" maxItems:"50" items:"^/[^*?#% \\x5c]*[*]?$"`
}

// SecretUse passes a secret to a sandbox as an environment variable.
type SecretUse struct {
	Name string `json:"name" doc:"the secret's name" pattern:"^[a-z0-9][a-z0-9-]{0,62}$"`
	Env  string `json:"env,omitempty" doc:"environment variable; default: the name in capitals, with _ instead of -" pattern:"^[A-Za-z_][A-Za-z0-9_]*$"`
}

// FromEgress converts e to its wire type. It returns nil if e is empty.
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

// Domain converts e to its domain type. If e is nil, the result allows no
// connections.
func (e *Egress) Domain() brig.Egress {
	if e == nil {
		return brig.Egress{}
	}
	out := brig.Egress{Bandwidth: int64(e.Bandwidth)}
	for _, r := range e.Rules {
		out.Rules = append(out.Rules, brig.EgressRule(r))
	}
	return out
}

// FromSecrets converts the secrets of a sandbox to their wire type.
func FromSecrets(list []brig.SecretUse) []SecretUse {
	var out []SecretUse
	for _, s := range list {
		out = append(out, SecretUse(s))
	}
	return out
}

// ToSecrets is the inverse of FromSecrets.
func ToSecrets(list []SecretUse) []brig.SecretUse {
	var out []brig.SecretUse
	for _, s := range list {
		out = append(out, brig.SecretUse(s))
	}
	return out
}
