package wire

import (
	"time"

	"github.com/brig-run/brig"
)

// Template is a named way of making sandboxes.
type Template struct {
	Name            string            `json:"name"`
	Image           string            `json:"image"`
	StandIn         string            `json:"stand_in,omitempty" doc:"the image that is used for as long as image is not there"`
	Packages        []string          `json:"packages,omitempty" doc:"Debian packages from which the image can be built"`
	Limits          *Limits           `json:"limits,omitempty" doc:"of sandboxes that are asked for without"`
	Env             map[string]string `json:"env,omitempty" doc:"under what the caller sets"`
	TTLMS           int64             `json:"ttl_ms,omitempty"`
	User            string            `json:"user,omitempty" doc:"of commands that do not say"`
	Cwd             string            `json:"cwd,omitempty" doc:"of commands that do not say"`
	Start           *TemplateCommand  `json:"start,omitempty" doc:"started when a sandbox begins"`
	Entrypoint      bool              `json:"entrypoint,omitempty" doc:"start is the image's entrypoint and command"`
	Ready           *TemplateCommand  `json:"ready,omitempty" doc:"run until it exits with 0, before the sandbox is anybody's"`
	ReadyTimeoutMS  int64             `json:"ready_timeout_ms,omitempty"`
	ReadyIntervalMS int64             `json:"ready_interval_ms,omitempty"`
}

// TemplateCommand is a command that a template runs.
type TemplateCommand struct {
	Command []string          `json:"command,omitempty"`
	Shell   string            `json:"shell,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	User    string            `json:"user,omitempty"`
}

// Templates is every template.
type Templates struct {
	Templates []Template `json:"templates" nullable:"false"`
}

// FromTemplate writes a template; limits are written by the caller.
func FromTemplate(t brig.Template) Template {
	return Template{
		Name: t.Name, Image: t.Image, StandIn: t.StandIn, Packages: t.Packages, Env: t.Env, TTLMS: t.TTL.Milliseconds(),
		User: t.User, Cwd: t.Dir, Start: fromTemplateCommand(t.Start), Entrypoint: t.Entrypoint, Ready: fromTemplateCommand(t.Ready),
		ReadyTimeoutMS: t.ReadyTimeout.Milliseconds(), ReadyIntervalMS: t.ReadyInterval.Milliseconds(),
	}
}

// Noun reads a template; limits are read by the caller.
func (t Template) Noun() brig.Template {
	return brig.Template{
		Name: t.Name, Image: t.Image, StandIn: t.StandIn, Packages: t.Packages, Env: t.Env, TTL: ms(t.TTLMS),
		User: t.User, Dir: t.Cwd, Start: t.Start.noun(), Entrypoint: t.Entrypoint, Ready: t.Ready.noun(),
		ReadyTimeout: ms(t.ReadyTimeoutMS), ReadyInterval: ms(t.ReadyIntervalMS),
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func fromTemplateCommand(c *brig.Command) *TemplateCommand {
	if c == nil {
		return nil
	}
	return &TemplateCommand{Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir, User: c.User}
}

func (c *TemplateCommand) noun() *brig.Command {
	if c == nil {
		return nil
	}
	return &brig.Command{Argv: c.Command, Shell: c.Shell, Env: c.Env, Dir: c.Cwd, User: c.User}
}
