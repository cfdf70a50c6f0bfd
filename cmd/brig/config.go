package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/image"
)

// config is the configuration file. Every field may be left out; brig.yaml
// beside this file shows them all with their defaults.
type config struct {
	// Listen is the address that the server listens on.
	Listen string `yaml:"listen"`
	// Hosts are further names by which clients may call the server.
	Hosts []string `yaml:"hosts"`
	// URL is where browsers find the server.
	URL string `yaml:"url"`
	// OIDC lets people sign in by an identity provider.
	OIDC *oidcConfig `yaml:"oidc"`
	// Sessions are browsers'.
	Sessions sessionsConfig `yaml:"sessions"`
	// Limits bound sandboxes.
	Limits struct {
		Default sizes `yaml:"default"`
		Max     sizes `yaml:"max"`
	} `yaml:"limits"`
	// Lease bounds how long sandboxes live.
	Lease struct {
		Default duration `yaml:"default"`
		Max     duration `yaml:"max"`
		MaxLife duration `yaml:"max_life"`
	} `yaml:"lease"`
	// Timeout bounds executions.
	Timeout struct {
		Default duration `yaml:"default"`
		Max     duration `yaml:"max"`
	} `yaml:"timeout"`
	// Pool says what waits to be used.
	Pool struct {
		// Memory bounds what waits. Default a tenth of the machine's.
		Memory size `yaml:"memory"`
		// Size is how many sandboxes of the image host wait for Python, with
		// default limits; -1 is no pool at all.
		Size whole `yaml:"size"`
		// Warm are further kinds that wait at all times.
		Warm []warm `yaml:"warm"`
	} `yaml:"pool"`
	// Images says where images come from, and how much there may be of them.
	Images struct {
		// Mirrors are asked before a registry.
		Mirrors map[string][]string `yaml:"mirrors"`
		// Registries are those that images may be pulled from; empty is all.
		Registries []string `yaml:"registries"`
		// PullMissing lets a sandbox's creation pull its image.
		PullMissing bool `yaml:"pull_missing"`
		// MaxSize bounds what all images take.
		MaxSize size `yaml:"max_size"`
		// DockerConfig has credentials of docker login used.
		DockerConfig bool `yaml:"docker_config"`
		// BuildMissing has the image of a template that has packages built when
		// it is first wanted.
		BuildMissing bool `yaml:"build_missing"`
	} `yaml:"images"`
	// Templates are what sandboxes can be made from by name.
	Templates map[string]templateConfig `yaml:"templates"`
	// E2B is the door for E2B's clients, on the same address.
	E2B struct {
		// Domain is the wildcard domain of sandboxes' ports, which clients
		// reach by {port}-{id}.domain.
		Domain string `yaml:"domain"`
		// Internet lets sandboxes of E2B's clients connect to everything
		// unless they are asked for with less.
		Internet bool `yaml:"internet"`
		// Templates are names under which clients know images: templates that
		// are nothing else.
		Templates map[string]string `yaml:"templates"`
		// Listen is a further address for this door alone, with TLS: clients
		// make https addresses of the domain.
		Listen string `yaml:"listen"`
		Cert   string `yaml:"cert"`
		Key    string `yaml:"key"`
	} `yaml:"e2b"`
	// Execman is the door for executor managers' clients.
	Execman execmanConfig `yaml:"execman"`
	// Kernels is the door of a Jupyter kernel gateway, on the same address.
	Kernels kernelsConfig `yaml:"kernels"`
	// Egress bounds where sandboxes may connect to.
	Egress egressConfig `yaml:"egress"`
	// Tools says how agents' tools are run.
	Tools toolsConfig `yaml:"tools"`
	// Providers are where sandboxes are made besides this machine.
	Providers providersConfig `yaml:"providers"`
	// Require is the least that every sandbox must be held to, by area.
	Require map[string]string `yaml:"require"`
	// Screening says which code is refused before it runs.
	Screening screening `yaml:"screening"`
	// Secrets says how they are kept.
	Secrets struct {
		// KMSCommand wraps and unwraps their keys.
		KMSCommand []string `yaml:"kms_command"`
	} `yaml:"secrets"`
	// Workspaces says where directories are kept that outlive sandboxes.
	Workspaces workspacesConfig `yaml:"workspaces"`
	// Audit says how long the audit log is kept.
	Audit struct {
		// Keep is the age at which lines go. Default never.
		Keep duration `yaml:"keep"`
	} `yaml:"audit"`
	// Rates are what providers ask for executions, by the providers' names.
	Rates map[string]rateConfig `yaml:"rates"`
	// Metrics says what is done to have them.
	Metrics struct {
		// Trial is how often a program is run in a sandbox of its own for
		// nothing but to see whether that works; 0 is never.
		Trial *duration `yaml:"trial"`
	} `yaml:"metrics"`
	// Alerts says what is wrong, and whom it is told.
	Alerts alertsConfig `yaml:"alerts"`
	// Otel says where traces go.
	Otel otelConfig `yaml:"otel"`
	// Region is where this server is, for its log.
	Region string `yaml:"region"`
	// Quota is that of tenants that are made without one.
	Quota struct {
		Sandboxes  whole   `yaml:"sandboxes"`
		Executions whole   `yaml:"executions"`
		Rate       float64 `yaml:"rate"`
		Workspaces size    `yaml:"workspaces"`
	} `yaml:"quota"`
	// Keep says how long things can be fetched after their end.
	Keep struct {
		Runs      duration `yaml:"runs"`
		Sandboxes duration `yaml:"sandboxes"`
	} `yaml:"keep"`
}

// warm is one kind of sandbox that waits.
type warm struct {
	Image    string `yaml:"image"`
	Language string `yaml:"language"`
	Limits   sizes  `yaml:"limits"`
	Count    whole  `yaml:"count"`
}

// defaultPool is how many sandboxes wait of a server that was told nothing.
const defaultPool = 4

// pool is what the engine keeps ready.
func (c *config) pool() (engine.PoolOptions, error) {
	o := engine.PoolOptions{Memory: int64(c.Pool.Memory)}
	if c.Pool.Size < 0 {
		return engine.PoolOptions{}, nil
	}
	if o.Memory == 0 {
		o.Memory = totalMemory() / 10
	}
	n := int(c.Pool.Size)
	if n == 0 {
		n = defaultPool
	}
	o.Warm = append(o.Warm, engine.Warm{Image: brig.HostImage, Language: brig.Python, Count: n})
	o.Warm = append(o.Warm, c.Execman.warm()...)
	for i, w := range c.Pool.Warm {
		language := brig.Language("")
		if w.Language != "" {
			var err error
			if language, err = brig.ParseLanguage(w.Language); err != nil {
				return o, brig.Errorf(brig.InvalidConfig, "pool.warm[%d].language: %s", i, brig.AsError(err).Message).
					WithHint("%s, or leave it out", brig.AsError(err).Hint)
			}
		}
		if w.Image == "" || w.Count < 1 {
			return o, brig.Errorf(brig.InvalidConfig, "pool.warm[%d] needs an image and a count", i).
				WithHint("for example {image: host, language: python, count: 4}")
		}
		var limits brig.Limits
		set(&limits, w.Limits)
		if _, err := c.bounds().Fill(limits); err != nil {
			told := brig.AsError(err)
			return o, brig.Errorf(brig.InvalidConfig, "pool.warm[%d].%s: %s", i, told.Field, told.Message).WithHint("%s", told.Hint)
		}
		o.Warm = append(o.Warm, engine.Warm{Image: w.Image, Language: language, Limits: limits, Count: int(w.Count)})
	}
	return o, nil
}

// quota is that of new tenants.
func (c *config) quota() brig.Quota {
	q := brig.DefaultQuota()
	pick(&q.Sandboxes, int(c.Quota.Sandboxes))
	pick(&q.Executions, int(c.Quota.Executions))
	pick(&q.Rate, c.Quota.Rate)
	pick(&q.Workspaces, int64(c.Quota.Workspaces))
	return q
}

// images are the options of the image store.
func (c *config) images() image.Options {
	return image.Options{
		Mirrors: c.Images.Mirrors, Registries: c.Images.Registries, PullMissing: c.Images.PullMissing,
		Quota: int64(c.Images.MaxSize), DockerConfig: c.Images.DockerConfig,
	}
}

// sizes are limits in a file.
type sizes struct {
	Memory    size    `yaml:"memory"`
	CPUs      float64 `yaml:"cpus"`
	Processes whole   `yaml:"processes"`
	OpenFiles whole   `yaml:"open_files"`
	Disk      size    `yaml:"disk"`
	Output    size    `yaml:"output"`
}

// size is a number of bytes, or text such as 512MiB.
type size int64

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (s *size) UnmarshalYAML(into func(any) error) error {
	return word(into, func(text string) error {
		n, err := wire.ParseSize(text)
		*s = size(n)
		return err
	})
}

// whole is a whole number: the library would cut what is behind its point.
type whole int64

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (w *whole) UnmarshalYAML(into func(any) error) error {
	return word(into, func(text string) error {
		n, err := strconv.ParseInt(text, 0, 64)
		if *w = whole(n); err != nil {
			return errors.New("must be a whole number such as 4")
		}
		return nil
	})
}

// duration is text such as 5m.
type duration time.Duration

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (d *duration) UnmarshalYAML(into func(any) error) error {
	return word(into, func(text string) error {
		v, err := time.ParseDuration(text)
		if *d = duration(v); err != nil {
			return errors.New(`must be a duration such as "5m" or "1h30m"`)
		}
		return nil
	})
}

// word reads a value that is one word. What is wrong with it is told as the
// library tells of what it finds by itself: with its place, and its field.
func word(into func(any) error, parse func(string) error) error {
	var text string
	if err := into(&text); err != nil {
		return err
	}
	err := parse(text)
	var n ast.Node
	if err == nil || into(&n) != nil || n == nil {
		return err
	}
	at := n.GetToken().Position
	return fmt.Errorf("[%d:%d] %s: %w", at.Line, at.Column, strings.TrimPrefix(n.GetPath(), "$."), err)
}

func (d duration) std() time.Duration { return time.Duration(d) }

// defaultRegion is where a server is that was told nothing else.
const defaultRegion = "local"

// defaultListen is where a server listens that was told nothing else.
const defaultListen = "127.0.0.1:2744"

// config reads the configuration file, if one was named.
func (c *cli) config() (*config, error) {
	cfg := &config{Listen: defaultListen, Region: defaultRegion}
	if c.configFile == "" {
		return cfg, nil
	}
	f, err := os.Open(c.configFile)
	if err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "the configuration file cannot be read").
			WithHint("check the path in --config or BRIG_CONFIG").Because(err)
	}
	defer f.Close()
	if err := yaml.NewDecoder(f, yaml.Strict()).Decode(cfg); err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "the configuration file is wrong: %s", yaml.FormatError(err, false, true)).
			WithHint("see docs/configuration.md for every field")
	}
	return cfg, cfg.check()
}

// bounds are the service's bounds, with what the file says.
func (c *config) bounds() brig.Bounds {
	b := brig.DefaultBounds()
	set(&b.Default, c.Limits.Default)
	set(&b.Max, c.Limits.Max)
	for to, from := range map[*time.Duration]duration{
		&b.DefaultTTL: c.Lease.Default, &b.MaxTTL: c.Lease.Max, &b.MaxLife: c.Lease.MaxLife,
		&b.DefaultTimeout: c.Timeout.Default, &b.MaxTimeout: c.Timeout.Max,
	} {
		if from != 0 {
			*to = time.Duration(from)
		}
	}
	return b
}

func set(l *brig.Limits, s sizes) {
	pick(&l.Memory, int64(s.Memory))
	pick(&l.CPUs, s.CPUs)
	pick(&l.Processes, int(s.Processes))
	pick(&l.OpenFiles, int(s.OpenFiles))
	pick(&l.Disk, int64(s.Disk))
	pick(&l.Output, int64(s.Output))
}

// pick takes v unless it was left out.
func pick[T comparable](to *T, v T) {
	var none T
	if v != none {
		*to = v
	}
}

// requirement is the least that every sandbox must be held to.
func (c *config) requirement() brig.Requirement { return wire.ToRequirement(c.Require) }

// check refuses bounds that contradict each other.
func (c *config) check() error {
	b := c.bounds()
	if _, err := b.Fill(brig.Limits{}); err != nil {
		told := brig.AsError(err)
		hint, _, _ := strings.Cut(told.Hint, ", or leave it out") // it would be for what is wrong
		return brig.Errorf(brig.InvalidConfig, "%s: the default is out of bounds: %s", told.Field, told.Message).WithHint("%s", hint)
	}
	for _, f := range []struct {
		name          string
		standard, max time.Duration
	}{{"lease", b.DefaultTTL, b.MaxTTL}, {"timeout", b.DefaultTimeout, b.MaxTimeout}} {
		if f.standard <= 0 || f.standard > f.max {
			return brig.Errorf(brig.InvalidConfig, "%s.default: %v is out of bounds", f.name, f.standard).
				WithHint("give a time above 0 and up to %s.max, which is %v", f.name, f.max)
		}
	}
	if n := len(c.E2B.Cert) + len(c.E2B.Key); (c.E2B.Listen == "") != (n == 0) || (c.E2B.Cert == "") != (c.E2B.Key == "") {
		return brig.Errorf(brig.InvalidConfig, "e2b.listen, e2b.cert and e2b.key belong together").
			WithHint("give all three: an address, and the files of a certificate for *.domain and of its key")
	}
	if _, err := c.Egress.options(); err != nil {
		return err
	}
	if _, err := c.Execman.options(); err != nil {
		return err
	}
	if _, err := c.Kernels.options(); err != nil {
		return err
	}
	if c.E2B.Internet && !c.Egress.Wide {
		return brig.Errorf(brig.InvalidConfig, "e2b.internet needs egress.wide").
			WithHint("set egress.wide, which lets everybody have rules that allow nearly everything, or leave out e2b.internet")
	}
	if err := c.requirement().Check("require"); err != nil {
		told := brig.AsError(err)
		return brig.Errorf(brig.InvalidConfig, "%s: %s", told.Field, told.Message).WithHint("%s", told.Hint)
	}
	if _, err := c.templates(); err != nil {
		return err
	}
	if _, err := c.Screening.rules(); err != nil {
		return err
	}
	if err := c.checkOIDC(); err != nil {
		return err
	}
	if err := c.Workspaces.check(); err != nil {
		return err
	}
	if c.Audit.Keep < 0 {
		return brig.Errorf(brig.InvalidConfig, "audit.keep is negative").WithHint("give a duration, or leave it out to keep everything")
	}
	if err := c.quota().Check(); err != nil {
		told := brig.AsError(err)
		return brig.Errorf(brig.InvalidConfig, "%s: %s", told.Field, told.Message).WithHint("%s", told.Hint)
	}
	_, err := c.pool()
	return err
}
