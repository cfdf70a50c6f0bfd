package engine

import (
	"slices"

	"github.com/brig-run/brig"
)

// ofImage returns spec with what its image says where neither the caller nor a
// template does: environment, working directory and user. Root is never the
// image's to choose: who wants it asks for it.
func ofImage(img *brig.Image, spec brig.Spec) (brig.Spec, error) {
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

// entrypoint is what an image runs, with arguments in the stead of its own if
// there are any.
func entrypoint(img *brig.Image, given *brig.Command) ([]string, error) {
	args := img.Config.Command
	if given != nil && len(given.Argv) > 0 {
		args = given.Argv
	}
	argv := slices.Concat(img.Config.Entrypoint, args)
	if len(argv) == 0 || argv[0] == "" {
		return nil, brig.InvalidField("entrypoint", "the image has neither an entrypoint nor a command").
			WithHint("give a command")
	}
	return argv, nil
}
