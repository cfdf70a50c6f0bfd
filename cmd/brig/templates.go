package main

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// templateConfig is a template in the configuration file.
type templateConfig struct {
	Image         string            `yaml:"image"`
	StandIn       string            `yaml:"stand_in"`
	Packages      []string          `yaml:"packages"`
	Limits        sizes             `yaml:"limits"`
	Env           map[string]string `yaml:"env"`
	TTL           duration          `yaml:"ttl"`
	BootOnce      bool              `yaml:"boot_once"`
	Imports       []string          `yaml:"imports"`
	User          string            `yaml:"user"`
	Cwd           string            `yaml:"cwd"`
	Start         command           `yaml:"start"`
	Entrypoint    bool              `yaml:"entrypoint"`
	Ready         command           `yaml:"ready"`
	ReadyTimeout  duration          `yaml:"ready_timeout"`
	ReadyInterval duration          `yaml:"ready_interval"`
}

// command is a shell script, or a list of a program and its arguments.
type command struct {
	shell string
	argv  []string
}

// UnmarshalYAML implements yaml.BytesUnmarshaler.
func (c *command) UnmarshalYAML(b []byte) error {
	if yaml.Unmarshal(b, &c.argv) == nil {
		return nil
	}
	c.argv = nil
	return yaml.Unmarshal(b, &c.shell)
}

func (c command) domain() *brig.Command {
	if c.shell == "" && len(c.argv) == 0 {
		return nil
	}
	return &brig.Command{Shell: c.shell, Argv: c.argv}
}

func (t templateConfig) domain(name string) brig.Template {
	out := brig.Template{
		Name: name, Image: t.Image, StandIn: t.StandIn, Packages: t.Packages, Env: t.Env, TTL: t.TTL.toDuration(),
		User: t.User, Dir: t.Cwd, Start: t.Start.domain(), Entrypoint: t.Entrypoint, Ready: t.Ready.domain(),
		ReadyTimeout: t.ReadyTimeout.toDuration(), ReadyInterval: t.ReadyInterval.toDuration(), BootOnce: t.BootOnce, Imports: t.Imports,
	}
	set(&out.Limits, t.Limits)
	return out
}

// builtinTemplates returns the templates that E2B clients expect. Until their images are
// built, they use the image of this machine's file system.
func builtinTemplates() []brig.Template {
	base := []string{"bash", "ca-certificates", "curl", "git", "iproute2", "nodejs", "procps", "python3", "python3-pip", "python3-venv"}
	code := append(slices.Clone(base), "ipython3", "python3-matplotlib", "python3-numpy", "python3-pandas",
		"python3-pil", "python3-requests", "python3-sympy")
	// npm depends on hundreds of packages, so only the template with which builds begin has it.
	return []brig.Template{
		{Name: "base", StandIn: brig.HostImage, Packages: append(slices.Clone(base), "npm")},
		{Name: "code-interpreter-v1", StandIn: brig.HostImage, Packages: code},
	}
}

// templates returns the built-in templates, those of e2b.templates, and those
// of templates. A later one replaces an earlier one of the same name.
func (c *config) templates() ([]brig.Template, error) {
	all := map[string]brig.Template{}
	for _, t := range builtinTemplates() {
		all[t.Name] = t
	}
	for name, image := range c.E2B.Templates {
		all[name] = brig.Template{Name: name, Image: image}
	}
	for name, t := range c.Templates {
		all[name] = t.domain(name)
	}
	var out []brig.Template
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name].Fill()
		if err := c.checkTemplate(t); err != nil {
			e := brig.AsError(err)
			return nil, brig.Errorf(brig.InvalidConfig, "templates.%s: %s: %s", name, e.Field, e.Message).WithHint("%s", e.Hint)
		}
		out = append(out, t)
	}
	return out, nil
}

// bootEach returns templates whose sandboxes boot on their own. Without a server, a booted template
// would be used by only one command.
func bootEach(all []brig.Template) []brig.Template {
	all = slices.Clone(all)
	for i := range all {
		all[i].BootOnce, all[i].Imports = false, nil
	}
	return all
}

func (c *config) checkTemplate(t brig.Template) error {
	if err := engine.CheckTemplate(t); err != nil {
		return err
	}
	b := c.limitRange()
	if _, err := b.Fill(t.Limits); err != nil {
		return err
	}
	if t.TTL != 0 {
		_, err := b.FillTTL("ttl", t.TTL)
		return err
	}
	return nil
}
