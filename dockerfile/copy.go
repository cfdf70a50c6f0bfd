package dockerfile

import (
	"path"
	"regexp"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/brig-run/brig"
)

// copyCommand converts COPY.
func (c *converter) copyCommand(cmd *instructions.CopyCommand) error {
	if cmd.From != "" {
		return brig.Errorf(brig.InvalidArgument, "COPY --from is not supported, because a build has one stage").WithHint("copy the files to your folder first")
	}
	if cmd.Parents {
		return brig.Errorf(brig.InvalidArgument, "COPY --parents is not supported").WithHint("write one COPY for each folder")
	}
	return c.copy("COPY", cmd.SourcesAndDest, cmd.ExcludePatterns, cmd.Chown, cmd.Chmod)
}

// addCommand converts ADD of local files.
func (c *converter) addCommand(cmd *instructions.AddCommand) error {
	for _, src := range cmd.SourcePaths {
		switch {
		case remote.MatchString(src):
			return brig.Errorf(brig.InvalidArgument, "ADD of a URL is not supported: %s", brig.Clip(src, 200)).WithHint("download the file in a RUN")
		case archiveName.MatchString(src):
			c.warnf("ADD: %s is copied, and not unpacked", brig.Clip(src, 200))
		}
	}
	return c.copy("ADD", cmd.SourcesAndDest, cmd.ExcludePatterns, cmd.Chown, cmd.Chmod)
}

// remote matches the URL of a file or of a Git repository, and archiveName an archive that ADD unpacks in
// Docker.
var (
	remote      = regexp.MustCompile(`^(?i)([a-z][a-z0-9+.-]*://|git@)`)
	archiveName = regexp.MustCompile(`\.(tar|tgz|tbz2|txz|tar\.[a-z0-9]+)$`)
)

// copy adds a copy step. Its archive has exactly the files to copy, so the server needs no patterns.
func (c *converter) copy(verb string, what instructions.SourcesAndDest, exclude []string, chown, chmod string) error {
	step := brig.BuildStep{Kind: brig.BuildCopy}
	var err error
	if step.Destination, err = c.words.expand(what.DestPath); err != nil {
		return err
	}
	if step.Owner, err = c.words.resolved(chown); err != nil {
		return err
	}
	if step.Mode, err = c.words.resolved(chmod); err != nil {
		return err
	}
	if step.Mode != "" && !octal.MatchString(step.Mode) {
		return brig.Errorf(brig.InvalidArgument, "%s: --chmod=%s is not supported", verb, brig.Clip(step.Mode, 40)).WithHint("write the mode as octal digits, for example 0755")
	}
	var sources []string
	for _, s := range what.SourcePaths {
		src, err := c.words.resolved(s)
		if err != nil {
			return err
		}
		sources = append(sources, src)
	}
	a, err := c.options.Files.archive(verb, sources, exclude)
	if err != nil {
		return err
	}
	for _, f := range what.SourceContents {
		if err := c.addContent(a, f); err != nil {
			return err
		}
	}
	// A single file can get another name. More than one, or a directory, is copied into a directory.
	step.Source = "."
	if a.single && len(a.entries) == 1 {
		step.Source = a.entries[0].name
	} else if len(what.SourcePaths)+len(what.SourceContents) > 1 && !strings.HasSuffix(step.Destination, "/") {
		return brig.Errorf(brig.InvalidArgument, "%s of several sources needs a directory as its destination", verb).WithHint("end the destination with /")
	}
	if step.Digest, err = a.digest(); err != nil {
		return err
	}
	c.out.Archives[step.Digest] = a
	c.add(step)
	return nil
}

var octal = regexp.MustCompile(`^[0-7]{3,4}$`)

// addContent adds a here document as a file. Docker expands references in it.
func (c *converter) addContent(a *Archive, f instructions.SourceContent) error {
	data := f.Data
	if f.Expand {
		lex := *c.words.lex
		lex.SkipProcessQuotes = true
		text, _, err := lex.ProcessWord(data, knownOnly{c.words})
		if err != nil {
			return brig.Errorf(brig.InvalidArgument, "%s", err)
		}
		data = text
	}
	a.single = a.single || len(a.entries) == 0
	a.entries = append(a.entries, entry{name: path.Base(f.Path), mode: 0o644, size: int64(len(data)), content: []byte(data)})
	return nil
}

// knownOnly finds only variables whose values are known. Others are empty, as in Docker.
type knownOnly struct{ w *words }

// Get implements shell.EnvGetter.
func (k knownOnly) Get(name string) (string, bool) { v, ok := k.w.known[name]; return v, ok }

// Keys implements shell.EnvGetter.
func (k knownOnly) Keys() []string { return lookup{w: k.w}.Keys() }
