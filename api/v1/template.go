package v1

import (
	"github.com/brig-run/brig"
)

// Template is a named specification of sandboxes.
type Template struct {
	Name            string            `json:"name"`
	Image           string            `json:"image"`
	StandIn         string            `json:"stand_in,omitempty" doc:"image to use until image exists"`
	Packages        []string          `json:"packages,omitempty" doc:"Debian packages from which the image can be built"`
	Limits          *Limits           `json:"limits,omitempty" doc:"default limits of sandboxes"`
	Env             map[string]string `json:"env,omitempty" doc:"environment variables, which the caller's override"`
	TTLMS           int64             `json:"ttl_ms,omitempty"`
	User            string            `json:"user,omitempty" doc:"default of commands"`
	Cwd             string            `json:"cwd,omitempty" doc:"default of commands"`
	Start           *TemplateCommand  `json:"start,omitempty" doc:"runs when a sandbox starts"`
	Entrypoint      bool              `json:"entrypoint,omitempty" doc:"run the image's entrypoint and command as start"`
	Ready           *TemplateCommand  `json:"ready,omitempty" doc:"runs until it succeeds; then the sandbox is ready"`
	BootOnce        bool              `json:"boot_once,omitempty" doc:"sandboxes are copies of one that has run start and ready"`
	Imports         []string          `json:"imports,omitempty" doc:"Python modules that the interpreter of the first context has imported"`
	ReadyTimeoutMS  int64             `json:"ready_timeout_ms,omitempty"`
	ReadyIntervalMS int64             `json:"ready_interval_ms,omitempty"`
	Built           *BuiltTemplate    `json:"built,omitempty" doc:"set if the caller's tenant has built the template, which then has no image of its own"`
}

// TemplateCommand is a command that a template runs.
type TemplateCommand struct {
	Command []string          `json:"command,omitempty"`
	Shell   string            `json:"shell,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	User    string            `json:"user,omitempty"`
}

// Templates is the list of all templates.
type Templates struct {
	Templates []Template `json:"templates" nullable:"false"`
}

// FromTemplate converts t to its wire type.
func FromTemplate(t brig.Template) Template {
	out := Template{
		Name: t.Name, Image: t.Image, StandIn: t.StandIn, Packages: t.Packages, Env: t.Env, TTLMS: FromDuration(t.TTL), Limits: FromLimits(t.Limits),
		User: t.User, Cwd: t.Dir, Start: fromTemplateCommand(t.Start), Entrypoint: t.Entrypoint, Ready: fromTemplateCommand(t.Ready),
		ReadyTimeoutMS: FromDuration(t.ReadyTimeout), ReadyIntervalMS: FromDuration(t.ReadyInterval), BootOnce: t.BootOnce, Imports: t.Imports,
	}
	if t.Built != nil {
		built := FromBuiltTemplate(t.Built)
		out.Built = &built
	}
	return out
}

// Domain converts t to its domain type.
func (t Template) Domain() brig.Template {
	out := brig.Template{
		Name: t.Name, Image: t.Image, StandIn: t.StandIn, Packages: t.Packages, Env: t.Env, TTL: ToDuration(t.TTLMS), Limits: t.Limits.Domain(),
		User: t.User, Dir: t.Cwd, Start: t.Start.toCommand(), Entrypoint: t.Entrypoint, Ready: t.Ready.toCommand(),
		ReadyTimeout: ToDuration(t.ReadyTimeoutMS), ReadyInterval: ToDuration(t.ReadyIntervalMS), BootOnce: t.BootOnce, Imports: t.Imports,
	}
	if t.Built != nil {
		out.Built = t.Built.Domain()
	}
	return out
}

func fromTemplateCommand(c *brig.Command) *TemplateCommand {
	if c == nil {
		return nil
	}
	return &TemplateCommand{Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir, User: c.User}
}

func (c *TemplateCommand) toCommand() *brig.Command {
	if c == nil {
		return nil
	}
	return &brig.Command{Argv: c.Command, Shell: c.Shell, Env: c.Env, Dir: c.Cwd, User: c.User}
}
