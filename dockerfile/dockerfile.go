// Package dockerfile converts a Dockerfile to the build of a template, as E2B's SDKs do:
//
//   - The steps begin as root in /. At the end, the user is "user" and the directory /home/user, unless
//     the Dockerfile sets others.
//   - ARG sets a variable of the template, like ENV.
//   - CMD and ENTRYPOINT are the start command.
//   - Files belong to the user of the steps before, unless COPY has --chown.
//   - EXPOSE, VOLUME, LABEL and MAINTAINER have no effect.
//
// References to variables are resolved where the Dockerfile sets the variables. The others remain in the
// steps, and the server resolves them with the variables of the image.
package dockerfile

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/brig-run/brig"
)

// Build is a converted Dockerfile.
type Build struct {
	// Spec has the base, the steps and the start command.
	Spec brig.BuildSpec
	// Archives are the files of the copy steps, by their digests.
	Archives map[string]*Archive
	// Warnings name parts of the Dockerfile that have no effect.
	Warnings []string
}

// Options configure Convert.
type Options struct {
	// Files is the folder from which COPY takes its files.
	Files *Folder
	// Args replace the defaults of ARG.
	Args map[string]string
}

// Convert converts a Dockerfile.
func Convert(r io.Reader, o Options) (*Build, error) {
	parsed, err := parser.Parse(r)
	if err != nil {
		return nil, syntaxError(err)
	}
	stages, args, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, syntaxError(err)
	}
	c := &converter{options: o, out: &Build{Archives: map[string]*Archive{}}, words: newWords(parsed.EscapeToken), unused: map[string]bool{}}
	for _, w := range parsed.Warnings {
		c.warnf("%s", w.Short)
	}
	for name := range o.Args {
		c.unused[name] = true
	}
	switch {
	case len(stages) == 0:
		return nil, brig.Errorf(brig.InvalidArgument, "the Dockerfile has no FROM")
	case len(stages) > 1:
		return nil, at(stages[1].Location, brig.Errorf(brig.InvalidArgument, "it is a second FROM, and a build has one stage").
			WithHint("build the other stages on your machine, and copy their files"))
	}
	if err := c.convert(stages[0], args); err != nil {
		return nil, err
	}
	for name := range c.unused {
		c.warnf("the Dockerfile has no ARG %s", name)
	}
	return c.out, nil
}

// parserPrefix matches the beginning of the parser's errors, which at replaces.
var parserPrefix = regexp.MustCompile(`^dockerfile parse error( on line \d+)?: `)

// syntaxError returns the error for a Dockerfile that cannot be parsed.
func syntaxError(err error) error {
	var where *parser.LocationError
	if errors.As(err, &where) && len(where.Locations) > 0 {
		return at(where.Locations[0], brig.Errorf(brig.InvalidArgument, "%s", parserPrefix.ReplaceAllString(err.Error(), "")))
	}
	return brig.Errorf(brig.InvalidArgument, "the Dockerfile cannot be parsed: %s", err)
}

// at returns an error that names the line of an instruction.
func at(where []parser.Range, err error) error {
	e := *brig.AsError(err)
	if len(where) > 0 && where[0].Start.Line > 0 && e.Kind == brig.InvalidArgument {
		e.Message = fmt.Sprintf("line %d of the Dockerfile: %s", where[0].Start.Line, e.Message)
	}
	return &e
}

// converter is the state of a conversion.
type converter struct {
	options Options
	out     *Build
	words   *words
	shell   []string        // of RUN, or nil for the default
	env     map[string]bool // the variables of ENV, which ARG does not change
	unused  map[string]bool // the names in Options.Args that no ARG has used

	userSet, dirSet bool
	cmd, entrypoint *instructions.ShellDependantCmdLine
}

func (c *converter) warnf(format string, args ...any) {
	c.out.Warnings = append(c.out.Warnings, fmt.Sprintf(format, args...))
}

func (c *converter) add(s brig.BuildStep) { c.out.Spec.Steps = append(c.out.Spec.Steps, s) }

func (c *converter) convert(stage instructions.Stage, args []instructions.ArgCommand) error {
	c.env = map[string]bool{}
	outer := map[string]string{} // the ARGs before FROM, which only FROM and an ARG without a default use
	for _, a := range args {
		for _, one := range a.Args {
			if value, ok, err := c.argValue(one, nil); err != nil {
				return at(a.Location(), err)
			} else if ok {
				outer[one.Key] = value
				c.words.setExpanded(one.Key, value)
			}
		}
	}
	image, err := c.words.resolved(stage.BaseName)
	if err == nil && image == "" {
		err = brig.Errorf(brig.InvalidArgument, "the name of the image is empty")
	}
	if err == nil && image == "scratch" {
		err = brig.Errorf(brig.InvalidArgument, "FROM scratch is not supported, because steps need a shell").WithHint("name an image")
	}
	if err != nil {
		return at(stage.Location, err)
	}
	if stage.Platform != "" {
		c.warnf("FROM: --platform has no effect")
	}
	c.out.Spec.Image = image
	c.words.reset()
	c.add(brig.BuildStep{Kind: brig.BuildUser, User: "root"})
	c.add(brig.BuildStep{Kind: brig.BuildWorkdir, Dir: "/"})
	for _, cmd := range stage.Commands {
		if err := c.instruction(cmd, outer); err != nil {
			return at(cmd.Location(), err)
		}
	}
	if !c.userSet {
		c.add(brig.BuildStep{Kind: brig.BuildUser, User: "user"})
	}
	if !c.dirSet {
		c.add(brig.BuildStep{Kind: brig.BuildWorkdir, Dir: "/home/user"})
	}
	c.out.Spec.Start = startCommand(c.entrypoint, c.cmd)
	return nil
}

// instruction converts one instruction. outer are the ARGs before FROM.
func (c *converter) instruction(cmd instructions.Command, outer map[string]string) (err error) {
	switch cmd := cmd.(type) {
	case *instructions.RunCommand:
		for _, f := range cmd.FlagsUsed {
			c.warnf("RUN: --%s has no effect", f)
		}
		c.add(brig.BuildStep{Kind: brig.BuildRun, Command: c.runCommand(cmd.ShellDependantCmdLine)})
	case *instructions.CopyCommand:
		return c.copyCommand(cmd)
	case *instructions.AddCommand:
		return c.addCommand(cmd)
	case *instructions.EnvCommand:
		return c.envCommand(cmd)
	case *instructions.ArgCommand:
		return c.argCommand(cmd, outer)
	case *instructions.WorkdirCommand:
		dir, err := c.words.expand(cmd.Path)
		c.dirSet = true
		c.add(brig.BuildStep{Kind: brig.BuildWorkdir, Dir: dir})
		return err
	case *instructions.UserCommand:
		user, err := c.words.resolved(cmd.User)
		c.userSet = true
		c.add(brig.BuildStep{Kind: brig.BuildUser, User: user})
		return err
	case *instructions.ShellCommand:
		c.shell = cmd.Shell
	case *instructions.CmdCommand:
		c.cmd = &cmd.ShellDependantCmdLine
	case *instructions.EntrypointCommand:
		c.entrypoint = &cmd.ShellDependantCmdLine
	case *instructions.ExposeCommand, *instructions.VolumeCommand, *instructions.LabelCommand, *instructions.MaintainerCommand:
	default:
		c.warnf("%s has no effect", strings.ToUpper(cmd.Name()))
	}
	return nil
}

// envCommand converts ENV. References in it have the values before it. The server sets the variables of a
// build one step after another, so those with references come first.
func (c *converter) envCommand(cmd *instructions.EnvCommand) error {
	plain, values := map[string]string{}, map[string]string{}
	for _, kv := range cmd.Env {
		name, err := c.words.resolved(kv.Key)
		if err != nil {
			return err
		}
		value, err := c.words.expand(kv.Value)
		if err != nil {
			return err
		}
		values[name] = value
		if delete(plain, name); hasReference(value) {
			c.add(brig.BuildStep{Kind: brig.BuildEnv, Env: map[string]string{name: value}})
		} else {
			plain[name] = value
		}
	}
	for name, value := range values {
		c.env[name] = true
		c.words.setExpanded(name, value)
	}
	if len(plain) > 0 {
		c.add(brig.BuildStep{Kind: brig.BuildEnv, Env: plain})
	}
	return nil
}

// argCommand converts ARG.
func (c *converter) argCommand(cmd *instructions.ArgCommand, outer map[string]string) error {
	for _, a := range cmd.Args {
		value, ok, err := c.argValue(a, outer)
		if err != nil {
			return err
		}
		if ok && !c.env[a.Key] {
			c.words.setExpanded(a.Key, value)
			c.add(brig.BuildStep{Kind: brig.BuildEnv, Env: map[string]string{a.Key: value}})
		}
	}
	return nil
}

// argValue returns the value of an ARG, with the references that the server resolves, and reports whether
// it has one.
func (c *converter) argValue(a instructions.KeyValuePairOptional, outer map[string]string) (string, bool, error) {
	if value, ok := c.options.Args[a.Key]; ok {
		delete(c.unused, a.Key)
		return literal(value), true, nil
	}
	if a.Value != nil {
		value, err := c.words.expand(*a.Value)
		return value, true, err
	}
	value, ok := outer[a.Key]
	return value, ok, nil
}

// runCommand returns the shell command of a RUN.
func (c *converter) runCommand(line instructions.ShellDependantCmdLine) string {
	if !line.PrependShell {
		return quoteAll(line.CmdLine)
	}
	command := withFiles(line)
	if len(c.shell) > 0 {
		return quoteAll(append(append([]string{}, c.shell...), command))
	}
	return command
}

// onlyHeredoc matches a command that is only the beginning of a here document.
var onlyHeredoc = regexp.MustCompile(`^\s*<<-?\s*["']?[A-Za-z0-9_.]+["']?\s*$`)

// withFiles returns a command with its here documents.
func withFiles(line instructions.ShellDependantCmdLine) string {
	command := strings.Join(line.CmdLine, " ")
	if len(line.Files) == 0 {
		return command
	}
	if f := line.Files[0]; len(line.Files) == 1 && onlyHeredoc.MatchString(command) {
		content := f.Data
		if f.Chomp {
			content = parser.ChompHeredocContent(content)
		}
		if !strings.HasPrefix(content, "#!") {
			return content
		}
		// A script with an interpreter of its own. The shell ends a here document at its own word.
		end := "BRIG_END"
		for strings.Contains(content, end) {
			end += "_"
		}
		return "f=$(mktemp) && cat > \"$f\" <<'" + end + "'\n" + strings.TrimSuffix(content, "\n") + "\n" + end + "\nchmod +x \"$f\" && \"$f\"; code=$?; rm -f \"$f\"; exit $code"
	}
	for _, f := range line.Files {
		command += "\n" + f.Data + f.Name
	}
	return command
}

// startCommand combines ENTRYPOINT and CMD by Docker's rules.
func startCommand(entrypoint, cmd *instructions.ShellDependantCmdLine) string {
	if entrypoint == nil {
		entrypoint, cmd = cmd, nil
	}
	switch {
	case entrypoint == nil || len(entrypoint.CmdLine) == 0:
		return ""
	case entrypoint.PrependShell:
		return withFiles(*entrypoint)
	}
	words := entrypoint.CmdLine
	switch {
	case cmd == nil || len(cmd.CmdLine) == 0:
	case cmd.PrependShell:
		words = append(append([]string{}, words...), "/bin/sh", "-c", withFiles(*cmd))
	default:
		words = append(append([]string{}, words...), cmd.CmdLine...)
	}
	return quoteAll(words)
}

// plainWord matches a word that needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoteAll returns words as a shell command.
func quoteAll(words []string) string {
	var out []string
	for _, w := range words {
		if !plainWord.MatchString(w) {
			w = "'" + strings.ReplaceAll(w, "'", `'"'"'`) + "'"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}
