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
	"github.com/brig-run/brig/guest/wire"
)

// completeSpec checks a spec and returns a copy with all defaults filled in.
func (i *images) completeSpec(v *call, spec brig.Spec) (brig.Spec, error) {
	if spec.Name != "" && !brig.ValidName(spec.Name) {
		return spec, nameError("name", spec.Name)
	}
	if spec.Image == "" {
		spec.Image = brig.HostImage
	}
	if err := v.tenantLimits.CheckRef(spec.Image); err != nil {
		return spec, err
	}
	var err error
	if spec.Limits, err = v.limitRange.Fill(spec.Limits); err != nil {
		return spec, err
	}
	if spec.TTL, err = v.limitRange.FillTTL("ttl_ms", spec.TTL); err != nil {
		return spec, err
	}
	if spec.FreezeAfter < 0 || spec.FreezeAfter > v.limitRange.MaxTTL {
		return spec, brig.InvalidField("freeze_after_ms", "%v is out of bounds", spec.FreezeAfter).
			WithHint("give a duration up to %v, or leave it out for never", v.limitRange.MaxTTL)
	}
	if err := checkPauses(spec); err != nil {
		return spec, err
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
	if spec.Secrets, err = checkSecretMounts(spec.Secrets, spec.Env); err != nil {
		return spec, err
	}
	// "user", "cwd" and "env" are fields of the main program.
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
			whole.Argv = []string{"entrypoint"} // the image defines it
		}
		if err := checkCommand("command_env", whole); err != nil {
			return spec, err
		}
		if c.Timeout < 0 || c.Timeout > v.limitRange.MaxTimeout {
			return spec, brig.InvalidField("timeout_ms", "%v is out of bounds", c.Timeout).
				WithHint("give a duration up to %v, or leave it out for none", v.limitRange.MaxTimeout)
		}
		spec.Command = &c
	}
	return spec, nil
}

// checkPauses checks the fields of a complete spec that configure automatic pauses.
func checkPauses(spec brig.Spec) error {
	field := "pause_at_end"
	if !spec.PauseAtEnd {
		field = "pause_after_ms"
	}
	pauses := spec.PauseAtEnd || spec.PauseAfter != 0
	switch {
	case spec.PauseFilesOnly && !pauses:
		return brig.InvalidField("pause_files_only", "nothing pauses the sandbox").
			WithHint("add pause_at_end or pause_after_ms, or leave it out; a pause by call has an option of its own")
	case spec.PauseAtEnd && isWrittenBack(spec): // the end of the lease writes the workspace back
		return brig.InvalidField(field, "a sandbox with a workspace that is written back ends with its lease").
			WithHint("leave out pause_at_end, or the workspace's mode direct")
	case pauses && !spec.PauseFilesOnly && (spec.Command != nil || isWrittenBack(spec)):
		return brig.InvalidField(field, "a sandbox with a main program, or with a workspace that is written back, cannot be paused").
			WithHint("leave out %s, or the command and the workspace's mode direct; or add pause_files_only", field)
	}
	return checkPauseAfter(spec)
}

// checkPauseAfter checks that a sandbox is idle long enough for its PauseAfter
// before its lease ends.
func checkPauseAfter(spec brig.Spec) error {
	switch {
	case spec.PauseAfter == 0:
		return nil
	case spec.PauseAfter < brig.MinPauseAfter:
		return brig.InvalidField("pause_after_ms", "%v is out of bounds", spec.PauseAfter).
			WithHint("give at least %v, or leave it out for never", brig.MinPauseAfter)
	case spec.PauseAfter >= spec.TTL:
		return brig.InvalidField("pause_after_ms", "%v is not less than the lease of %v, so the sandbox would end before it is paused", spec.PauseAfter, spec.TTL).
			WithHint("give a longer ttl_ms or a shorter pause_after_ms; pause_at_end pauses it at the end of the lease")
	}
	return nil
}

func nameError(field, name string) error {
	return brig.InvalidField(field, "%q is not a name", truncate(name)).
		WithHint("use 1 to 63 of a-z, 0-9 and -, not beginning with -")
}

// truncate shortens a caller's input for a message.
func truncate(s string) string { return brig.Clip(s, 80) }

// Bounds of values that have no configurable limit.
const (
	maxLabels  = 64          // labels
	maxArgs    = 10_000      // arguments of a command
	maxArgSize = 128<<10 - 1 // bytes of one argument or variable; the kernel's limit
	maxCommand = 1 << 20     // bytes of a command or a script
	maxDir     = 4096        // bytes of a directory's path
	maxCode    = 16 << 20    // bytes of a program's code or arguments
)

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return brig.InvalidField("labels", "%d labels are too many", len(labels)).WithHint("give at most %d", maxLabels)
	}
	for k, v := range labels {
		if k == "" || len(k) > 128 || len(v) > 1024 || !utf8.ValidString(k+v) || strings.ContainsAny(k+v, "\x00\n") {
			return brig.InvalidField("labels", "%q cannot be a label", truncate(k)).
				WithHint("keys have 1 to 128 bytes and values up to 1024, without line breaks")
		}
		if strings.HasPrefix(k, toolLabelPrefix) {
			return brig.InvalidField("labels", "%q is a label of the server's own", truncate(k)).
				WithHint("keys do not begin with %s", toolLabelPrefix)
		}
	}
	return nil
}

// checkCommand checks a command. env is the field name in errors about its variables.
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
		if len(a) > maxArgSize {
			return brig.InvalidField(fmt.Sprintf("command[%d]", i), "an argument cannot have %d bytes", len(a)).
				WithHint("give at most %d; put long inputs into files or stdin", maxArgSize)
		}
	}
	if len(c.Argv) > 0 && c.Argv[0] == "" {
		return brig.InvalidField("command[0]", "the program has no name")
	}
	if strings.ContainsRune(c.Shell, 0) {
		return brig.InvalidField("shell", "a script cannot have NUL")
	}
	if len(c.Argv) > maxArgs || size > maxCommand || len(c.Shell) > 120<<10 {
		return brig.InvalidField("command", "it is too long").WithHint("put long scripts and inputs into files or stdin")
	}
	if err := checkDir("cwd", c.Dir); err != nil {
		return err
	}
	if err := checkUser("user", c.User); err != nil {
		return err
	}
	for k, v := range c.Env {
		if len(k)+1+len(v) > maxArgSize {
			return brig.InvalidField(env, "%q cannot have %d bytes", truncate(k), len(v)).
				WithHint("give at most %d; put larger things into files", maxArgSize-1-len(k))
		}
	}
	return brig.CheckEnv(env, c.Env)
}

func checkDir(field, dir string) error {
	if dir != "" && (!path.IsAbs(dir) || strings.ContainsRune(dir, 0) || len(dir) > maxDir) {
		return brig.InvalidField(field, "%q is not an absolute path", truncate(dir)).WithHint("for example /workspace; at most %d bytes", maxDir)
	}
	return nil
}

func checkUser(field, u string) error {
	switch u {
	case "", "user", "root":
		return nil
	}
	if _, _, ok := wire.ParseAccount(u); ok {
		return nil
	}
	return brig.InvalidField(field, "no user %q", truncate(u)).WithHint(`use "user" (the default), "root", or the IDs of another user and its group, for example "1001:1001"`)
}

// resolveImage finds a local image by its reference.
func (i *images) resolveImage(ctx context.Context, ref string) (*brig.Image, error) {
	img, err := i.Options.Images.Resolve(ctx, ref)
	return img, imageError(err)
}

// missingImage is the error for a sandbox whose image is missing. Callers get an invalid-field
// error, because they requested a sandbox and not an image.
type missingImage struct{ err *brig.Error }

// Error implements error.
func (m missingImage) Error() string { return m.err.Error() }

// Unwrap returns the error that callers see.
func (m missingImage) Unwrap() error { return m.err }

func imageError(err error) error {
	k := brig.AsError(err)
	switch {
	case err == nil:
		return nil
	case k.Kind == brig.NotFound:
		return missingImage{brig.InvalidField("image", "%s", k.Message).WithHint("%s", k.Hint)}
	case k.Kind == brig.InvalidArgument && k.Field != "": // the field of a pull: "ref"
		e := *k
		e.Field = "image"
		return &e
	}
	return err
}

// newID returns an unguessable sandbox ID.
func newID() brig.ID { return brig.ID("sb" + strings.ToLower(rand.Text())) }

// newExecID returns an ID for an execution.
func newExecID() string { return "ex" + strings.ToLower(rand.Text()) }

// newName returns a random name that is most likely unused.
func newName(prefix string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}
