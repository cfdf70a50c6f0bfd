package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/image"
)

// config is the configuration file. Every field is optional. The file brig.yaml in this directory
// lists all fields with their defaults.
type config struct {
	// Listen is the address that the server listens on.
	Listen string `yaml:"listen"`
	// Hosts are additional host names by which clients may call the server.
	Hosts []string `yaml:"hosts"`
	// TrustedProxies are the addresses and networks of reverse proxies whose
	// forwarding headers are trusted.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// URL is the server's URL for browsers.
	URL string `yaml:"url"`
	// OIDC configures sign-in through an identity provider.
	OIDC *oidcConfig `yaml:"oidc"`
	// Sessions configures browser sessions.
	Sessions sessionsConfig `yaml:"sessions"`
	// Limits are the default and maximum limits of sandboxes.
	Limits struct {
		Default sizes `yaml:"default"`
		Max     sizes `yaml:"max"`
	} `yaml:"limits"`
	// Lease bounds the lifetime of sandboxes.
	Lease struct {
		Default  duration `yaml:"default"`
		Max      duration `yaml:"max"`
		MaxLife  duration `yaml:"max_life"`
		MaxPause duration `yaml:"max_pause"`
	} `yaml:"lease"`
	// Timeout bounds the duration of executions.
	Timeout struct {
		Default duration `yaml:"default"`
		Max     duration `yaml:"max"`
	} `yaml:"timeout"`
	// Start bounds the time that a call waits for the creation of its sandbox.
	Start struct {
		// Wait is the maximum wait. A call that would wait longer is rejected
		// immediately.
		Wait duration `yaml:"wait"`
	} `yaml:"start"`
	// Pool configures the warm pool.
	Pool struct {
		// Memory bounds the memory of the warm pool. Default: a tenth of the
		// machine's memory.
		Memory size `yaml:"memory"`
		// Size is the number of warm Python sandboxes of the image host with default limits. -1
		// disables the pool.
		Size integer `yaml:"size"`
		// Warm lists additional pool classes that are always kept warm.
		Warm []warm `yaml:"warm"`
	} `yaml:"pool"`
	// Images configures the sources of images and their total size.
	Images struct {
		// Mirrors maps registries to mirrors that are tried first.
		Mirrors map[string][]string `yaml:"mirrors"`
		// Registries lists the registries from which images may be pulled. An empty list allows all
		// registries.
		Registries []string `yaml:"registries"`
		// PullMissing allows pulling a missing image when a sandbox is created.
		PullMissing bool `yaml:"pull_missing"`
		// MaxSize bounds the total size of all images.
		MaxSize size `yaml:"max_size"`
		// DockerConfig enables the use of the credentials that docker login has stored.
		DockerConfig bool `yaml:"docker_config"`
		// BuildMissing builds the image of a template with packages at its
		// first use.
		BuildMissing bool `yaml:"build_missing"`
	} `yaml:"images"`
	// Templates are the templates by name.
	Templates map[string]templateConfig `yaml:"templates"`
	// E2B configures the API for E2B clients, on the same address.
	E2B struct {
		// Domain is the wildcard domain of the sandboxes' ports. Clients connect to a port at
		// {port}-{id}.domain.
		Domain string `yaml:"domain"`
		// Internet allows sandboxes of E2B clients to connect to all hosts, unless the client
		// requests narrower rules.
		Internet bool `yaml:"internet"`
		// Unsecured allows any client that knows the ID of a sandbox to use its
		// code interpreter, if the sandbox was created without "secure".
		Unsecured bool `yaml:"unsecured"`
		// Templates maps template names to images. Such a template has no other
		// settings.
		Templates map[string]string `yaml:"templates"`
		// Listen is an additional address for this API alone, with TLS, because
		// clients build https URLs from the domain.
		Listen string `yaml:"listen"`
		Cert   string `yaml:"cert"`
		Key    string `yaml:"key"`
	} `yaml:"e2b"`
	// Execman configures the API for clients of executor managers.
	Execman execmanConfig `yaml:"execman"`
	// Kernels configures the API of a Jupyter kernel gateway, on the same
	// address.
	Kernels kernelsConfig `yaml:"kernels"`
	// Egress bounds the connections from sandboxes to other hosts.
	Egress egressConfig `yaml:"egress"`
	// Tools configures how agents' tools run.
	Tools toolsConfig `yaml:"tools"`
	// Providers configures the providers of sandboxes besides this machine.
	Providers providersConfig `yaml:"providers"`
	// Require is the minimum enforcement of every sandbox, by area.
	Require map[string]string `yaml:"require"`
	// Screening configures the rejection of code before it runs.
	Screening screening `yaml:"screening"`
	// Secrets configures the encryption of secrets.
	Secrets struct {
		// KMSCommand wraps and unwraps the keys of secrets.
		KMSCommand []string `yaml:"kms_command"`
	} `yaml:"secrets"`
	// Workspaces configures the storage of workspaces.
	Workspaces workspacesConfig `yaml:"workspaces"`
	// Volumes configures volumes. Size is the size of a volume that is created without one.
	Volumes struct {
		Size size `yaml:"size"`
	} `yaml:"volumes"`
	// Webhooks configures the webhooks of tenants. Private permits addresses of this machine and of
	// private networks, and plain HTTP.
	Webhooks struct {
		Private bool `yaml:"private"`
	} `yaml:"webhooks"`
	// Audit configures the retention of the audit log.
	Audit struct {
		// Keep is the age at which records are deleted. The default is defaultKeepAudit.
		Keep duration `yaml:"keep"`
		// Lines is the maximum number of records per tenant. The default is defaultAuditLines.
		Lines integer `yaml:"lines"`
	} `yaml:"audit"`
	// Rates are the prices of executions, by provider name.
	Rates map[string]rateConfig `yaml:"rates"`
	// Metrics configures background work for metrics.
	Metrics struct {
		// Trial is the interval of trial runs, which run a test program in a
		// new sandbox. 0 disables them.
		Trial *duration `yaml:"trial"`
	} `yaml:"metrics"`
	// Alerts configures alert rules and the receiver of notifications.
	Alerts alertsConfig `yaml:"alerts"`
	// Otel configures the export of traces.
	Otel otelConfig `yaml:"otel"`
	// Region is the location of this server that its logs contain.
	Region string `yaml:"region"`
	// Requests bounds the server's resources that requests may use.
	Requests requestsConfig `yaml:"requests"`
	// Streams bounds long-lived streams from sandboxes.
	Streams streamsConfig `yaml:"streams"`
	// Quota is the default quota of new tenants.
	Quota struct {
		Sandboxes  integer `yaml:"sandboxes"`
		Executions integer `yaml:"executions"`
		Rate       float64 `yaml:"rate"`
		Workspaces size    `yaml:"workspaces"`
		Volumes    size    `yaml:"volumes"`
		Outputs    size    `yaml:"outputs"`
	} `yaml:"quota"`
	// Keep bounds the age and the number of stored results; see brig.Keep.
	Keep struct {
		Runs      duration `yaml:"runs"`
		Sandboxes duration `yaml:"sandboxes"`

		Executions   integer `yaml:"executions"`
		Outputs      integer `yaml:"outputs"`
		MaxRuns      integer `yaml:"max_runs"`
		MaxSandboxes integer `yaml:"max_sandboxes"`
		Bytes        size    `yaml:"bytes"`
	} `yaml:"keep"`
	// Pause configures paused sandboxes.
	Pause struct {
		// PackAfter is the time after which the save of a paused sandbox is compressed and
		// encrypted. A negative value disables packing.
		PackAfter duration `yaml:"pack_after"`
	} `yaml:"pause"`
}

// warm is a pool class and the number of its sandboxes that are kept warm.
type warm struct {
	Image    string  `yaml:"image"`
	Language string  `yaml:"language"`
	Limits   sizes   `yaml:"limits"`
	Count    integer `yaml:"count"`
}

// capacity returns the options that bound concurrent creations of sandboxes.
func (c *config) capacity() capacity.Options {
	return capacity.Options{CheckRoom: checkMemory, MaxWait: cmp.Or(time.Duration(c.Start.Wait), capacity.ServerMaxWait)}
}

// defaultPool is the default number of warm sandboxes of a server.
const defaultPool = 4

// pool returns the options of the engine's warm pool.
func (c *config) pool() (engine.PoolOptions, error) {
	o := engine.PoolOptions{Memory: int64(c.Pool.Memory)}
	if c.Pool.Size < 0 {
		return engine.PoolOptions{}, nil
	}
	if o.Memory == 0 {
		o.Memory = readTotalMemory() / 10
	}
	n := int(c.Pool.Size)
	if n == 0 {
		n = defaultPool
	}
	o.Warm = append(o.Warm, engine.WarmClass{Image: brig.HostImage, Language: brig.Python, Count: n})
	o.Warm = append(o.Warm, c.Execman.warmClasses()...)
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
		if _, err := c.limitRange().Fill(limits); err != nil {
			e := brig.AsError(err)
			return o, brig.Errorf(brig.InvalidConfig, "pool.warm[%d].%s: %s", i, e.Field, e.Message).WithHint("%s", e.Hint)
		}
		o.Warm = append(o.Warm, engine.WarmClass{Image: w.Image, Language: language, Limits: limits, Count: int(w.Count)})
	}
	return o, nil
}

// quota returns the quota of new tenants.
func (c *config) quota() brig.Quota {
	q := brig.DefaultQuota()
	setNonZero(&q.Sandboxes, int(c.Quota.Sandboxes))
	setNonZero(&q.Executions, int(c.Quota.Executions))
	setNonZero(&q.Rate, c.Quota.Rate)
	setNonZero(&q.Workspaces, int64(c.Quota.Workspaces))
	setNonZero(&q.Volumes, int64(c.Quota.Volumes))
	setNonZero(&q.Outputs, int64(c.Quota.Outputs))
	return q
}

// keep returns the retention limits of executions and other records.
func (c *config) keep() brig.Keep {
	k := c.Keep
	return brig.Keep{
		Executions: int(k.Executions), Outputs: int(k.Outputs), Runs: int(k.MaxRuns), Ended: int(k.MaxSandboxes), Bytes: int64(k.Bytes),
	}.OrDefault()
}

// images returns the options of the image store.
func (c *config) images() image.Options {
	return image.Options{
		Mirrors: c.Images.Mirrors, Registries: c.Images.Registries, PullMissing: c.Images.PullMissing,
		Quota: int64(c.Images.MaxSize), DockerConfig: c.Images.DockerConfig,
	}
}

// sizes are the limits of a sandbox in a configuration file.
type sizes struct {
	Memory    size    `yaml:"memory"`
	CPUs      float64 `yaml:"cpus"`
	Processes integer `yaml:"processes"`
	OpenFiles integer `yaml:"open_files"`
	Disk      size    `yaml:"disk"`
	Output    size    `yaml:"output"`
}

// size is a number of bytes, written in YAML as a number or as text such as 512MiB.
type size int64

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (s *size) UnmarshalYAML(into func(any) error) error {
	return parseScalar(into, func(text string) error {
		n, err := v1.ParseSize(text)
		*s = size(n)
		return err
	})
}

// integer is a whole number in the configuration. It rejects fractions, which the YAML library
// would truncate.
type integer int64

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (w *integer) UnmarshalYAML(into func(any) error) error {
	return parseScalar(into, func(text string) error {
		n, err := strconv.ParseInt(text, 0, 64)
		if *w = integer(n); err != nil {
			return errors.New("must be a whole number such as 4")
		}
		return nil
	})
}

// duration is a time.Duration that is written in YAML as text, for example 5m.
type duration time.Duration

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (d *duration) UnmarshalYAML(into func(any) error) error {
	return parseScalar(into, func(text string) error {
		v, err := time.ParseDuration(text)
		if *d = duration(v); err != nil {
			return errors.New(`must be a duration such as "5m" or "1h30m"`)
		}
		return nil
	})
}

// parseScalar parses a scalar. Its errors have the format of the library's own errors, with the
// position and the field.
func parseScalar(into func(any) error, parse func(string) error) error {
	var text string
	if err := into(&text); err != nil {
		return err
	}
	err := parse(text)
	var n ast.Node
	if err == nil || into(&n) != nil || n == nil {
		return err
	}
	position := n.GetToken().Position
	return fmt.Errorf("[%d:%d] %s: %w", position.Line, position.Column, strings.TrimPrefix(n.GetPath(), "$."), err)
}

func (d duration) toDuration() time.Duration { return time.Duration(d) }

// defaultRegion is the default region of a server.
const defaultRegion = "local"

// defaultListen is the default listen address of a server.
const defaultListen = "127.0.0.1:2744"

// loadConfig reads and checks the configuration file. Without a file, it returns the defaults.
func (c *cli) loadConfig() (*config, error) {
	cfg := &config{Listen: defaultListen, Region: defaultRegion}
	if c.configFile == "" {
		return cfg, nil
	}
	f, err := os.Open(c.configFile)
	if err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "cannot read the configuration file: %s", reasonOf(err)).
			WithHint("check the path in --config or BRIG_CONFIG")
	}
	defer f.Close()
	if err := yaml.NewDecoder(f, yaml.Strict()).Decode(cfg); err != nil {
		return nil, brig.Errorf(brig.InvalidConfig, "invalid configuration file: %s", yaml.FormatError(err, false, true)).
			WithHint("docs/configuration.md describes every field")
	}
	return cfg, cfg.check()
}

// limitRange returns the default limit range, overridden by the values in the
// file.
func (c *config) limitRange() brig.LimitRange {
	b := brig.DefaultLimitRange()
	set(&b.Default, c.Limits.Default)
	set(&b.Max, c.Limits.Max)
	for to, from := range map[*time.Duration]duration{
		&b.DefaultTTL: c.Lease.Default, &b.MaxTTL: c.Lease.Max, &b.MaxLife: c.Lease.MaxLife, &b.MaxPause: c.Lease.MaxPause,
		&b.DefaultTimeout: c.Timeout.Default, &b.MaxTimeout: c.Timeout.Max,
	} {
		if from != 0 {
			*to = time.Duration(from)
		}
	}
	return b
}

func set(l *brig.Limits, s sizes) {
	setNonZero(&l.Memory, int64(s.Memory))
	setNonZero(&l.CPUs, s.CPUs)
	setNonZero(&l.Processes, int(s.Processes))
	setNonZero(&l.OpenFiles, int(s.OpenFiles))
	setNonZero(&l.Disk, int64(s.Disk))
	setNonZero(&l.Output, int64(s.Output))
}

// setNonZero sets the target to v unless v is zero.
func setNonZero[T comparable](to *T, v T) {
	var none T
	if v != none {
		*to = v
	}
}

// requirement returns the minimum enforcement of every sandbox.
func (c *config) requirement() brig.Requirement { return v1.ToRequirement(c.Require) }

// check rejects invalid values and values that contradict each other.
func (c *config) check() error {
	b := c.limitRange()
	if _, err := b.Fill(brig.Limits{}); err != nil {
		e := brig.AsError(err)
		hint, _, _ := strings.Cut(e.Hint, ", or leave it out") // that part of the hint applies to requests only
		return brig.Errorf(brig.InvalidConfig, "%s: the default is out of bounds: %s", e.Field, e.Message).WithHint("%s", hint)
	}
	for _, f := range []struct {
		name          string
		standard, max time.Duration
	}{{"lease", b.DefaultTTL, b.MaxTTL}, {"timeout", b.DefaultTimeout, b.MaxTimeout}} {
		if f.standard <= 0 || f.standard > f.max {
			return brig.Errorf(brig.InvalidConfig, "%s.default: %v is out of bounds", f.name, f.standard).
				WithHint("give a duration above 0, at most %s.max (%v)", f.name, f.max)
		}
	}
	if n := len(c.E2B.Cert) + len(c.E2B.Key); (c.E2B.Listen == "") != (n == 0) || (c.E2B.Cert == "") != (c.E2B.Key == "") {
		return brig.Errorf(brig.InvalidConfig, "e2b.listen, e2b.cert and e2b.key belong together").
			WithHint("give all three: an address, the file of a certificate for *.domain, and the file of its key")
	}
	if _, err := c.parseProxies(); err != nil {
		return err
	}
	if err := c.checkRequests(); err != nil {
		return err
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
			WithHint("set egress.wide, which allows rules for nearly all addresses, or leave out e2b.internet")
	}
	if err := c.requirement().Check("require"); err != nil {
		e := brig.AsError(err)
		return brig.Errorf(brig.InvalidConfig, "%s: %s", e.Field, e.Message).WithHint("%s", e.Hint)
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
	if c.Audit.Keep < 0 || c.Audit.Lines < 0 {
		return brig.Errorf(brig.InvalidConfig, "audit.keep or audit.lines is negative").
			WithHint("give a duration and a number, or leave them out for %d days and %d lines of each tenant", defaultKeepAudit/(24*time.Hour), defaultAuditLines)
	}
	if err := c.quota().Check(); err != nil {
		e := brig.AsError(err)
		return brig.Errorf(brig.InvalidConfig, "%s: %s", e.Field, e.Message).WithHint("%s", e.Hint)
	}
	_, err := c.pool()
	return err
}
