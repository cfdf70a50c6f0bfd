package brig

import (
	"fmt"
	"strings"
)

// Limits on a sandbox's egress rules.
const (
	maxRules     = 200
	maxRuleParts = 50 // ports, methods, or paths of one rule
	minBandwidth = 1 * KiB
)

// Check returns an error that names the first invalid field.
func (e *Egress) Check() error {
	if len(e.Rules) > maxRules {
		return InvalidField("egress.rules", "there are %d rules", len(e.Rules)).
			WithHint("give at most %d", maxRules)
	}
	if e.Bandwidth != 0 && e.Bandwidth < minBandwidth {
		return InvalidField("egress.bandwidth", "%d is out of bounds", e.Bandwidth).
			WithHint("give bytes per second, at least %d, or leave it out for no limit", minBandwidth)
	}
	for i := range e.Rules {
		if err := e.Rules[i].check(fmt.Sprintf("egress.rules[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

func (r *EgressRule) check(field string) error {
	switch {
	case r.Host == "" && r.CIDR == "":
		return InvalidField(field, "the rule has neither a host nor a network").
			WithHint(`give "host" or "cidr"; without rules, all egress is blocked`)
	case r.Host != "" && r.CIDR != "":
		return InvalidField(field, "the rule has both a host and a network").WithHint("give two rules")
	case isNetwork(r.Host):
		return InvalidField(field+".host", "%q is an address", Clip(r.Host, 100)).WithHint(`give it as "cidr"`)
	case r.Host != "" && r.Host != "*":
		if err := checkHost(field+".host", strings.TrimPrefix(r.Host, "*.")); err != nil {
			return err
		}
	}
	if r.CIDR != "" {
		if err := r.checkNetwork(field); err != nil {
			return err
		}
	}
	if len(r.Ports) > maxRuleParts || len(r.Methods) > maxRuleParts || len(r.Paths) > maxRuleParts {
		return InvalidField(field, "the rule has too many ports, methods or paths").WithHint("give at most %d of each", maxRuleParts)
	}
	for _, p := range r.Ports {
		if p < 1 || p > 65535 {
			return InvalidField(field+".ports", "%d is not a port", p).WithHint("give numbers from 1 to 65535")
		}
	}
	for _, m := range r.Methods {
		if m == "" || len(m) > 32 || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") != "" {
			return InvalidField(field+".methods", "%q is not a method", m).WithHint(`methods are in capitals, for example "GET"`)
		}
	}
	for _, p := range r.Paths {
		if len(p) > 1024 || !isCleanPath(p) {
			return InvalidField(field+".paths", "%q is not a valid path", p).
				WithHint(`begin with "/", without "..", "%%" or a query; a "*" at the end matches what follows`)
		}
	}
	return nil
}

func (r *EgressRule) checkNetwork(field string) error {
	p, err := ParseNetwork(r.CIDR)
	switch {
	case err != nil || strings.Contains(r.CIDR, "%"):
		return InvalidField(field+".cidr", "%q is not a network", Clip(r.CIDR, 100)).
			WithHint("for example 192.0.2.0/24, or one address")
	case p.Addr().Is4In6():
		return InvalidField(field+".cidr", "%q hides an IPv4 network", r.CIDR).WithHint("write it as one")
	case p != p.Masked():
		return InvalidField(field+".cidr", "%q has bits beyond its prefix", r.CIDR).WithHint("write %s", p.Masked())
	case r.IsHTTP():
		return InvalidField(field, "methods and paths need a host").WithHint("HTTP rules are judged by name")
	}
	return nil
}

// checkHost accepts canonical host names: lower case, with letters, digits and
// "-" in labels. It rejects names that could be parsed as an address.
func checkHost(field, host string) error {
	hint := `write a name as DNS has it, for example "api.example.com", in lower case; names in other scripts as "xn--…"`
	if !ValidHost(host) {
		return InvalidField(field, "%q is not a host name", Clip(host, 100)).WithHint("%s", hint)
	}
	return nil
}

// isNetwork reports whether s is an address or a network, optionally in
// brackets, in a field that requires a name.
func isNetwork(s string) bool {
	_, err := ParseNetwork(strings.Trim(s, "[]"))
	return err == nil
}

// ValidHost reports whether s is a canonical host name.
func ValidHost(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' ||
			strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	// Some programs parse a name with a numeric last label as an address: 127.1,
	// 0x7f.1, 10.0.0.08.
	last := labels[len(labels)-1]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}
