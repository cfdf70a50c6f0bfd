package main

import (
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/kernels"
)

// kernelsConfig is the door of a Jupyter kernel gateway.
type kernelsConfig struct {
	// Default is the spec of kernels that are asked for without one.
	Default string `yaml:"default"`
	// Image is what kernels are made from. Default host.
	Image string `yaml:"image"`
	// Egress are the hosts to which kernels may connect.
	Egress []string `yaml:"egress"`
	// Idle is how long a kernel lives without being used.
	Idle duration `yaml:"idle"`
	// Timeout bounds a piece of code.
	Timeout duration `yaml:"timeout"`
}

// options are what the door is made of, but for the engine.
func (k *kernelsConfig) options() (kernels.Options, error) {
	o := kernels.Options{Default: k.Default, Image: k.Image, Idle: k.Idle.std(), Timeout: k.Timeout.std()}
	if k.Default != "" && !kernels.ValidSpec(k.Default) {
		return o, brig.Errorf(brig.InvalidConfig, "kernels.default: there is no spec %q", brig.Clip(k.Default, 64)).
			WithHint("give %s or %s", kernels.Stateful, kernels.Ephemeral)
	}
	for field, d := range map[string]time.Duration{"idle": o.Idle, "timeout": o.Timeout} {
		if d < 0 {
			return o, brig.Errorf(brig.InvalidConfig, "kernels.%s is negative", field).WithHint("give a duration, for example 10m")
		}
	}
	for i, host := range k.Egress {
		rules := brig.Egress{Rules: []brig.EgressRule{{Host: host}}}
		if err := rules.Check(); err != nil {
			return o, brig.Errorf(brig.InvalidConfig, "kernels.egress[%d]: %s", i, brig.AsError(err).Message).
				WithHint("give a host, for example packages.example.com")
		}
		o.Egress.Rules = append(o.Egress.Rules, rules.Rules...)
	}
	return o, nil
}
