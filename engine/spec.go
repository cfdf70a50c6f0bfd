package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// complete checks what is asked for and fills in every default. It changes
// nothing but its copy of spec.
func (e *Engine) complete(v *visit, spec brig.Spec) (brig.Spec, error) {
	if spec.Name != "" && !brig.ValidName(spec.Name) {
		return spec, nameError("name", spec.Name)
	}
	if spec.Image == "" {
		spec.Image = brig.HostImage
	}
	if err := v.ceilings.AllowsRef(spec.Image); err != nil {
		return spec, err
	}
	var err error
	if spec.Limits, err = v.bounds.Fill(spec.Limits); err != nil {
		return spec, err
	}
	if spec.TTL, err = v.bounds.FillTTL("ttl_ms", spec.TTL); err != nil {
		return spec, err
	}
	if spec.FreezeAfter < 0 || spec.FreezeAfter > v.bounds.MaxTTL {
		return spec, brig.InvalidField("freeze_after_ms", "%v is out of bounds", spec.FreezeAfter).
			WithHint("give a duration up to %v, or leave it out for never", v.bounds.MaxTTL)
	}
	if err := brig.CheckEnv("env", spec.Env); err != nil {
		return spec, err
	}
	if err := checkLabels(spec.Labels); err != nil {
		return spec, err
	}
	if err := spec.Egress.Check(); err != nil {
		return spec, err
	}
	if spec.Secrets, err = checkUses(spec.Secrets, spec.Env); err != nil {
		return spec, err
	}
	// "user", "cwd" and "env" are the main program's.
	if err := checkUser("default_user", spec.User); err != nil {
		return spec, err
	}
	if err := checkDir("default_cwd", spec.Dir); err != nil {
		return spec, err
	}
	if spec.Command != nil {
		c := *spec.Command
		if spec.Entrypoint && c.Shell != "" {
			return spec, brig.InvalidField("shell", "an entrypoint takes arguments and no script").WithHint("leave out entrypoint, or give a command")
		}
		whole := c
		if spec.Entrypoint && len(c.Argv) == 0 {
			whole.Argv = []string{"entrypoint"} // it is known when the image is
		}
		if err := checkCommand("command_env", whole); err != nil {
			return spec, err
		}
		if c.Timeout < 0 || c.Timeout > v.bounds.MaxTimeout {
			return spec, brig.InvalidField("timeout_ms", "%v is out of bounds", c.Timeout).
				WithHint("give a duration up to %v, or leave it out for none", v.bounds.MaxTimeout)
		}
		spec.Command = &c
	}
	return spec, nil
}

func nameError(field, name string) error {
	return brig.InvalidField(field, "%q is not a name", clip(name)).
		WithHint("use 1 to 63 of a-z, 0-9 and -, not beginning with -")
}

// clip shortens what a caller sent for a message.
func clip(s string) string { return brig.Clip(s, 80) }

// The bounds of things that have no limit of their own.
const (
	maxLabels  = 64          // labels
	maxWords   = 10_000      // arguments of a command
	maxWord    = 128<<10 - 1 // bytes of one argument or variable; the kernel's own bound
	maxCommand = 1 << 20     // bytes of a command or a script
	maxDir     = 4096        // bytes of a directory's name
	maxCode    = 16 << 20    // bytes of a program's code or arguments
)

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return brig.InvalidField("labels", "%d labels are too many", len(labels)).WithHint("give at most %d", maxLabels)
	}
	for k, v := range labels {
		if k == "" || len(k) > 128 || len(v) > 1024 || !utf8.ValidString(k+v) || strings.ContainsAny(k+v, "\x00\n") {
			return brig.InvalidField("labels", "%q cannot be a label", clip(k)).
				WithHint("keys have 1 to 128 bytes and values up to 1024, without line breaks")
		}
		if strings.HasPrefix(k, labelsOfTools) {
			return brig.InvalidField("labels", "%q is a label of the server's own", clip(k)).
				WithHint("keys do not begin with %s", labelsOfTools)
		}
	}
	return nil
}

// checkCommand checks a command, of which env is the field of its variables.
func checkCommand(env string, c brig.Command) error {
	if (len(c.Argv) == 0) == (c.Shell == "") {
		return brig.InvalidField("command", "give a command or a shell script, and not both").
			WithHint(`for example {"command":["echo","hi"]} or {"shell":"echo hi | tr a b"}`)
	}
	size := len(c.Shell)
	for i, a := range c.Argv {
		size += len(a)
		if strings.ContainsRune(a, 0) {
			return brig.InvalidField(fmt.Sprintf("command[%d]", i), "an argument cannot have NUL")
		}
		if len(a) > maxWord {
			return brig.InvalidField(fmt.Sprintf("command[%d]", i), "an argument cannot have %d bytes", len(a)).
				WithHint("give at most %d; put long inputs into files or stdin", maxWord)
		}
	}
	if len(c.Argv) > 0 && c.Argv[0] == "" {
		return brig.InvalidField("command[0]", "the program has no name")
	}
	if strings.ContainsRune(c.Shell, 0) {
		return brig.InvalidField("shell", "a script cannot have NUL")
	}
	if len(c.Argv) > maxWords || size > maxCommand || len(c.Shell) > 120<<10 {
		return brig.InvalidField("command", "it is too long").WithHint("put long scripts and inputs into files or stdin")
	}
	if err := checkDir("cwd", c.Dir); err != nil {
		return err
	}
	if err := checkUser("user", c.User); err != nil {
		return err
	}
	for k, v := range c.Env {
		if len(k)+1+len(v) > maxWord {
			return brig.InvalidField(env, "%q cannot have %d bytes", clip(k), len(v)).
				WithHint("give at most %d; put larger things into files", maxWord-1-len(k))
		}
	}
	return brig.CheckEnv(env, c.Env)
}

func checkDir(field, dir string) error {
	if dir != "" && (!path.IsAbs(dir) || strings.ContainsRune(dir, 0) || len(dir) > maxDir) {
		return brig.InvalidField(field, "%q is not an absolute path", clip(dir)).WithHint("for example /workspace; at most %d bytes", maxDir)
	}
	return nil
}

func checkUser(field, u string) error {
	switch u {
	case "", "user", "root":
		return nil
	}
	return brig.InvalidField(field, "no user %q", clip(u)).WithHint(`use "user" (the default) or "root"`)
}

// resolve finds the image that spec means, among those that are here.
func (e *Engine) resolve(ctx context.Context, ref string) (*brig.Image, error) {
	img, err := e.Options.Images.Resolve(ctx, ref)
	return img, imageError(err)
}

// missingImage says that the image of a create is not here. The image is a
// field then; it is not what was looked for.
type missingImage struct{ told *brig.Error }

// Error implements error.
func (m missingImage) Error() string { return m.told.Error() }

// Unwrap returns what callers see.
func (m missingImage) Unwrap() error { return m.told }

func imageError(err error) error {
	k := brig.AsError(err)
	switch {
	case err == nil:
		return nil
	case k.Kind == brig.NotFound:
		return missingImage{brig.InvalidField("image", "%s", k.Message).WithHint("%s", k.Hint)}
	case k.Kind == brig.InvalidArgument && k.Field != "": // of a pull: "ref"
		e := *k
		e.Field = "image"
		return &e
	}
	return err
}

// newID returns an id that nobody can guess.
func newID() brig.ID { return brig.ID("sb" + strings.ToLower(rand.Text())) }

// newExecID returns an id of an execution.
func newExecID() string { return "ex" + strings.ToLower(rand.Text()) }

// newName returns a name that is most likely free.
func newName(prefix string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}
