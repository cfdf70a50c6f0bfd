package main

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/execman"
	"github.com/brig-run/brig/engine"
)

// execmanConfig configures the API of an executor manager.
type execmanConfig struct {
	// Listen is the listen address. An empty address disables the API.
	Listen string `yaml:"listen"`
	// Allow lists the networks that may connect. By default, only this machine may connect.
	Allow []string `yaml:"allow"`
	// Tenant is the tenant for which programs run.
	Tenant string `yaml:"tenant"`
	// Pool is the number of concurrent programs of a language, and also the number of warm
	// sandboxes for it.
	Pool integer `yaml:"pool"`
	// Timeout and Memory are the limits of every program.
	Timeout duration `yaml:"timeout"`
	Memory  size     `yaml:"memory"`
	// Egress lists the hosts to which programs may connect.
	Egress []string `yaml:"egress"`
	// PythonImage and NodeImage are the images in which Python and JavaScript programs run. The default is the image host.
	PythonImage string `yaml:"python_image"`
	NodeImage   string `yaml:"node_image"`
}

// These are the defaults and limits of the executor manager API.
const (
	defaultExecman       = "127.0.0.1:9385"
	defaultExecmanMemory = 256 * brig.MiB
	maxExecmanPool       = 100
)

// options returns the options of the API, except the engine.
func (e *execmanConfig) options() (execman.Options, error) {
	reject := func(field, format string, args ...any) *brig.Error {
		out := brig.Errorf(brig.InvalidConfig, format, args...)
		out.Message = "execman." + field + ": " + out.Message
		return out
	}
	o := execman.Options{
		Actor:   brig.Actor{Name: "execman", Tenant: cmp.Or(e.Tenant, tenant), Role: brig.Member},
		Pool:    cmp.Or(int(e.Pool), execman.DefaultPool),
		Timeout: cmp.Or(e.Timeout.toDuration(), execman.DefaultTimeout),
		Limits:  brig.Limits{Memory: int64(cmp.Or(e.Memory, defaultExecmanMemory))},
		Images:  map[brig.Language]string{brig.Python: e.PythonImage, brig.JavaScript: e.NodeImage},
	}
	if o.Pool < 1 || o.Pool > maxExecmanPool {
		return o, reject("pool", "%d is out of bounds", o.Pool).WithHint("give 1 to %d", maxExecmanPool)
	}
	if o.Timeout < time.Second || o.Timeout > 10*time.Minute {
		return o, reject("timeout", "%v is out of bounds", o.Timeout).WithHint("give 1s to 10m")
	}
	for _, s := range e.Allow {
		p, err := netip.ParsePrefix(s)
		if addr, aerr := netip.ParseAddr(s); aerr == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return o, reject("allow", "%q is not a network", brig.Clip(s, 100)).WithHint("for example 10.0.0.0/8, or one address")
		}
		o.Allow = append(o.Allow, p.Masked())
	}
	var err error
	if o.Egress, err = hostRules("execman.egress", e.Egress); err != nil {
		return o, err
	}
	if e.Listen == "" {
		return o, nil
	}
	host, port, err := net.SplitHostPort(e.Listen)
	if err != nil || strings.Trim(port, "0123456789") != "" {
		return o, reject("listen", "%q is not an address", brig.Clip(e.Listen, 100)).WithHint("for example %s", defaultExecman)
	}
	if addr, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !addr.IsLoopback()) && len(o.Allow) == 0 {
		return o, reject("listen", "other machines can connect, and the protocol has no authentication").
			WithHint("list the allowed networks in execman.allow (--allow), or listen on %s", defaultExecman)
	}
	if host != "" {
		o.Hosts = append(o.Hosts, host)
	}
	return o, nil
}

// warmClasses returns the pool classes of the API's programs.
func (e *execmanConfig) warmClasses() []engine.WarmClass {
	o, err := e.options()
	if e.Listen == "" || err != nil {
		return nil
	}
	return []engine.WarmClass{{Image: cmp.Or(e.PythonImage, brig.HostImage), Language: brig.Python, Limits: o.Limits, Count: o.Pool}}
}

// readEnvironment sets the fields that the file omits from the environment
// variables of RAGFlow deployments.
func (e *execmanConfig) readEnvironment(env func(string) string) error {
	reject := func(name, hint string) error {
		return brig.Errorf(brig.InvalidConfig, "%s: %q is invalid", name, brig.Clip(env(name), 60)).WithHint("%s", hint)
	}
	e.PythonImage = cmp.Or(e.PythonImage, env("SANDBOX_BASE_PYTHON_IMAGE"))
	e.NodeImage = cmp.Or(e.NodeImage, env("SANDBOX_BASE_NODEJS_IMAGE"))
	if s := env("SANDBOX_EXECUTOR_MANAGER_POOL_SIZE"); s != "" && e.Pool == 0 {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxExecmanPool {
			return reject("SANDBOX_EXECUTOR_MANAGER_POOL_SIZE", "give 1 to 100")
		}
		e.Pool = integer(n)
	}
	if s := env("SANDBOX_TIMEOUT"); s != "" && e.Timeout == 0 {
		d, err := time.ParseDuration(s)
		if err != nil {
			return reject("SANDBOX_TIMEOUT", "for example 10s, 90s or 1m30s")
		}
		e.Timeout = duration(d)
	}
	if s := env("SANDBOX_MAX_MEMORY"); s != "" && e.Memory == 0 {
		n, err := parseMemory(s)
		if err != nil {
			return reject("SANDBOX_MAX_MEMORY", "for example 256m or 1g")
		}
		e.Memory = n
	}
	return nil
}

// parseMemory parses a number with the suffix b, k, m or g.
func parseMemory(s string) (size, error) {
	units := map[string]int64{"b": 1, "k": brig.KiB, "m": brig.MiB, "g": brig.GiB}
	unit, ok := units[strings.ToLower(s[len(s)-1:])]
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 32)
	if err == nil && (!ok || n < 1) {
		err = strconv.ErrSyntax
	}
	return size(n * unit), err
}
