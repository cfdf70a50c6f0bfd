package brig

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Template is an operator's named configuration for sandboxes: an image,
// defaults for fields that the caller leaves out, and commands that run before
// the first use.
type Template struct {
	Name string
	// Image is an image by name or digest. Default: the template's name.
	Image string
	// StandIn is the image to use if Image does not exist.
	StandIn string
	// Packages are Debian packages from which Image can be built.
	Packages []string
	// Limits, Env and TTL are defaults for sandboxes. Env holds a separate default
	// for each variable.
	Limits Limits
	Env    map[string]string
	TTL    time.Duration
	// BootOnce makes the server boot the template once, with its start and ready commands.
	// Sandboxes are copies of the result, with its processes and memory, if their limits are
	// those of the template and the provider can save sandboxes. The commands have no network and
	// cannot read the variables and secrets of a sandbox.
	BootOnce bool
	// Imports are the Python modules that the interpreter of a sandbox's first context has
	// already imported. They require BootOnce.
	Imports []string
	// User and Dir are the defaults of commands.
	User, Dir string
	// Start is a command that starts with the sandbox. It is managed like any
	// process.
	Start *Command
	// Entrypoint uses the image's entrypoint and command as Start.
	Entrypoint bool
	// Ready is run repeatedly, at intervals of ReadyInterval, until it exits with
	// 0. The sandbox is ready only then. If this takes longer than ReadyTimeout,
	// the creation fails.
	Ready                       *Command
	ReadyTimeout, ReadyInterval time.Duration
	// Built describes a template that the caller's tenant has built; nil for one that the operator has
	// configured. A built template has no other field except Name.
	Built *BuiltTemplate `json:",omitempty"`
}

// Default and maximum values for a template's ready command.
const (
	DefaultReadyTimeout  = time.Minute
	DefaultReadyInterval = 250 * time.Millisecond
	MaxReadyTimeout      = 30 * time.Minute
)

// StartTag is the tag of the process that runs a template's start command.
const StartTag = "template"

// Check returns an error that names the first invalid field of t. It does not check the user, whose
// rules the engine has.
func (t Template) Check() error {
	switch {
	case !ValidTemplate(t.Name):
		return InvalidField("name", "%q cannot be a template's name", t.Name).WithHint("use 1 to 63 of a-z, A-Z, 0-9 and -_.")
	case t.Start != nil && t.Entrypoint:
		return InvalidField("start", "there is a start command and the image's own").WithHint("give start or entrypoint, and not both")
	case len(t.Imports) > 0 && !t.BootOnce:
		return InvalidField("imports", "there are modules to import, and each sandbox boots on its own").WithHint("set boot_once, or leave imports out")
	case len(t.Imports) > maxImports:
		return InvalidField("imports", "there are %d modules", len(t.Imports)).WithHint("give up to %d", maxImports)
	case slices.ContainsFunc(t.Imports, func(m string) bool { return !validModule(m) }):
		return InvalidField("imports", "%q contains a name that no Python module can have", t.Imports).WithHint("for example [numpy, matplotlib.pyplot]")
	case t.Ready == nil && (t.ReadyTimeout != 0 || t.ReadyInterval != 0):
		return InvalidField("ready", "there is a time for a ready command, and none that is run").WithHint("give ready")
	case t.ReadyTimeout < 0 || t.ReadyTimeout > MaxReadyTimeout:
		return InvalidField("ready_timeout", "%v is out of bounds", t.ReadyTimeout).WithHint("give up to %v", MaxReadyTimeout)
	case t.ReadyInterval < 0 || t.ReadyInterval > MaxReadyTimeout:
		return InvalidField("ready_interval", "%v is out of bounds", t.ReadyInterval).WithHint("give up to %v", MaxReadyTimeout)
	case len(t.Packages) > 0 && !ValidName(t.Fill().Image):
		return InvalidField("packages", "an image %q cannot be built of packages", t.Image).WithHint("give image a name of a-z, 0-9 and -, or leave it out")
	case t.Dir != "" && (!path.IsAbs(t.Dir) || strings.ContainsRune(t.Dir, 0)):
		return InvalidField("cwd", "%q is not an absolute path", t.Dir).WithHint("for example /srv")
	}
	return nil
}

// ValidTemplate reports whether s is a valid template name. The rule is wider than
// ValidName, because E2B allows more names.
func ValidTemplate(s string) bool {
	const begin = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return len(s) > 0 && len(s) <= 63 && strings.Trim(s[:1], begin) == "" && strings.Trim(s, begin+"-_.") == ""
}

// maxImports is the maximum number of modules that a template imports.
const maxImports = 100

// validModule reports whether s can be the full name of a Python module.
func validModule(s string) bool {
	if len(s) > 200 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			return false
		}
	}
	return true
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

// Apply returns spec with the template's values for fields that spec does not
// set. It modifies neither.
func (t Template) Apply(spec Spec) Spec {
	spec.Image = t.Image
	spec.Limits = spec.Limits.Or(t.Limits)
	spec.TTL, spec.User, spec.Dir = cmp.Or(spec.TTL, t.TTL), cmp.Or(spec.User, t.User), cmp.Or(spec.Dir, t.Dir)
	if len(t.Env) > 0 {
		env := maps.Clone(t.Env)
		maps.Copy(env, spec.Env)
		spec.Env = env
	}
	return spec
}
