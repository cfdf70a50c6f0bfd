package engine

import (
	"slices"

	"github.com/brig-run/brig"
)

// withImageDefaults returns spec with the image's environment, working directory and user filled in
// where neither the caller nor a template sets them. An image cannot select root: only an explicit
// request runs as root.
func withImageDefaults(img *brig.Image, spec brig.Spec) (brig.Spec, error) {
	spec.Env = withImage(img, spec.Env)
	if dir := img.Config.WorkingDir; spec.Dir == "" && dir != "/" {
		spec.Dir = dir
	}
	if !spec.Entrypoint {
		return spec, nil
	}
	argv, err := entrypoint(img, spec.Command)
	if err != nil {
		return spec, err
	}
	c := brig.Command{}
	if spec.Command != nil {
		c = *spec.Command
	}
	c.Argv = argv
	if err := checkCommand("command_env", c); err != nil {
		return spec, err
	}
	if c.User == "" && spec.User == "" {
		c.User = img.Config.Account
	}
	spec.Command = &c
	return spec, nil
}

// entrypoint returns the command line of an image. Arguments from the caller
// replace the image's own command.
func entrypoint(img *brig.Image, requested *brig.Command) ([]string, error) {
	args := img.Config.Command
	if requested != nil && len(requested.Argv) > 0 {
		args = requested.Argv
	}
	argv := slices.Concat(img.Config.Entrypoint, args)
	if len(argv) == 0 || argv[0] == "" {
		return nil, brig.InvalidField("entrypoint", "the image has neither an entrypoint nor a command").
			WithHint("give a command")
	}
	return argv, nil
}
