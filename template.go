package brig

import (
	"maps"
	"path"
	"strings"
	"time"
)

// Template is a way of making sandboxes that an operator has named: an image,
// defaults for what a caller does not say, and what is to run in it before
// anybody else uses it.
type Template struct {
	Name string
	// Image is an image by name or digest. Default: the one of the template's
	// name.
	Image string
	// StandIn is an image that is used for as long as Image is not there.
	StandIn string
	// Packages are Debian packages from which Image can be built.
	Packages []string
	// Limits, Env and TTL are for sandboxes that are asked for without; of the
	// environment each variable for itself.
	Limits Limits
	Env    map[string]string
	TTL    time.Duration
	// User and Dir are those of commands that do not say.
	User, Dir string
	// Start is started when a sandbox begins and looked after as any process.
	Start *Command
	// Entrypoint has the image's entrypoint and command be Start.
	Entrypoint bool
	// Ready is run again and again, with pauses of ReadyInterval, until it
	// exits with 0: before that there is no sandbox. If it takes longer than
	// ReadyTimeout there is none at all.
	Ready                       *Command
	ReadyTimeout, ReadyInterval time.Duration
}

// What a template waits for being ready by default, and the longest.
const (
	DefaultReadyTimeout  = time.Minute
	DefaultReadyInterval = 250 * time.Millisecond
	MaxReadyTimeout      = 30 * time.Minute
)

// StartTag is the tag of the process that a template has started.
const StartTag = "template"

// Check returns what is wrong with t, as an error that names the field.
func (t Template) Check() error {
	switch {
	case !ValidTemplate(t.Name):
		return InvalidField("name", "%q cannot be a template's name", t.Name).WithHint("use 1 to 63 of a-z, A-Z, 0-9 and -_.")
	case t.Start != nil && t.Entrypoint:
		return InvalidField("start", "there is a start command and the image's own").WithHint("give start or entrypoint, and not both")
	case t.Ready == nil && (t.ReadyTimeout != 0 || t.ReadyInterval != 0):
		return InvalidField("ready", "there is a time for a ready command, and none that is run").WithHint("give ready")
	case t.ReadyTimeout < 0 || t.ReadyTimeout > MaxReadyTimeout:
		return InvalidField("ready_timeout", "%v is out of bounds", t.ReadyTimeout).WithHint("give up to %v", MaxReadyTimeout)
	case t.ReadyInterval < 0 || t.ReadyInterval > MaxReadyTimeout:
		return InvalidField("ready_interval", "%v is out of bounds", t.ReadyInterval).WithHint("give up to %v", MaxReadyTimeout)
	case t.User != "" && t.User != "user" && t.User != "root":
		return InvalidField("user", "no user %q", t.User).WithHint(`use "user" (the default) or "root"`)
	case len(t.Packages) > 0 && !ValidName(t.Fill().Image):
		return InvalidField("packages", "an image %q cannot be built of packages", t.Image).WithHint("give image a name of a-z, 0-9 and -, or leave it out")
	case t.Dir != "" && (!path.IsAbs(t.Dir) || strings.ContainsRune(t.Dir, 0)):
		return InvalidField("cwd", "%q is not an absolute path", t.Dir).WithHint("for example /srv")
	}
	return nil
}

// ValidTemplate reports whether s can name a template: E2B's names are wider
// than those of sandboxes.
func ValidTemplate(s string) bool {
	const begin = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return len(s) > 0 && len(s) <= 63 && strings.Trim(s[:1], begin) == "" && strings.Trim(s, begin+"-_.") == ""
}

// Fill returns t with its defaults.
func (t Template) Fill() Template {
	if t.Image == "" {
		t.Image = t.Name
	}
	if t.Ready != nil && t.ReadyTimeout == 0 {
		t.ReadyTimeout = DefaultReadyTimeout
	}
	if t.Ready != nil && t.ReadyInterval == 0 {
		t.ReadyInterval = DefaultReadyInterval
	}
	return t
}

// Apply returns spec with what t says where spec does not. Neither is changed.
func (t Template) Apply(spec Spec) Spec {
	spec.Image = t.Image
	l, d := &spec.Limits, t.Limits
	orElse(&l.Memory, d.Memory)
	orElse(&l.CPUs, d.CPUs)
	orElse(&l.Processes, d.Processes)
	orElse(&l.OpenFiles, d.OpenFiles)
	orElse(&l.Disk, d.Disk)
	orElse(&l.Output, d.Output)
	orElse(&spec.TTL, t.TTL)
	orElse(&spec.User, t.User)
	orElse(&spec.Dir, t.Dir)
	if len(t.Env) > 0 {
		env := maps.Clone(t.Env)
		maps.Copy(env, spec.Env)
		spec.Env = env
	}
	return spec
}

// orElse sets what is zero.
func orElse[T comparable](v *T, other T) {
	var none T
	if *v == none {
		*v = other
	}
}
