package main

import (
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
)

// kernelsConfig configures the API of a Jupyter kernel gateway.
type kernelsConfig struct {
	// Default is the kernel spec for clients that do not specify one.
	Default string `yaml:"default"`
	// Image is the image of kernels. The default is the image host.
	Image string `yaml:"image"`
	// Egress lists the hosts to which kernels may connect.
	Egress []string `yaml:"egress"`
	// Idle is how long a kernel may be idle before it is ended.
	Idle duration `yaml:"idle"`
	// Timeout bounds one execution.
	Timeout duration `yaml:"timeout"`
}

// options returns the options of the API, except the engine.
func (k *kernelsConfig) options() (kernels.Options, error) {
	o := kernels.Options{Default: k.Default, Image: k.Image, Idle: k.Idle.toDuration(), Timeout: k.Timeout.toDuration()}
	if k.Default != "" && !kernels.IsValidSpec(k.Default) {
		return o, brig.Errorf(brig.InvalidConfig, "kernels.default: no kernel spec %q", brig.Clip(k.Default, 64)).
			WithHint("give %s or %s", kernels.Stateful, kernels.Ephemeral)
	}
	for field, d := range map[string]time.Duration{"idle": o.Idle, "timeout": o.Timeout} {
		if d < 0 {
			return o, brig.Errorf(brig.InvalidConfig, "kernels.%s is negative", field).WithHint("give a duration, for example 10m")
		}
	}
	var err error
	o.Egress, err = hostRules("kernels.egress", k.Egress)
	return o, err
}

// hostRules returns egress rules for a list of hosts in the configuration.
func hostRules(field string, hosts []string) (brig.Egress, error) {
	var out brig.Egress
	for i, host := range hosts {
		rules := brig.Egress{Rules: []brig.EgressRule{{Host: host}}}
		if err := rules.Check(); err != nil {
			return out, brig.Errorf(brig.InvalidConfig, "%s[%d]: %s", field, i, brig.AsError(err).Message).
				WithHint("give a host, for example packages.example.com")
		}
		out.Rules = append(out.Rules, rules.Rules...)
	}
	return out, nil
}
