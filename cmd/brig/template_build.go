package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/dockerfile"
)

// templateBuild has the flags of brig template build.
type templateBuild struct {
	templateCommands
	dockerfile, name    string
	fromTemplate        string
	start, ready        string
	startSet            bool
	cpus                float64
	memory              string
	args, tags          []string
	noCache, background bool
}

func (c templateCommands) build() *cobra.Command {
	f := templateBuild{templateCommands: c}
	cmd := &cobra.Command{
		Use:   "build [FOLDER]",
		Short: "Build a template from a Dockerfile",
		Long: `Build a template from the Dockerfile in a folder (default: the working directory), and
print its name. The steps run in a sandbox of your tenant, as root unless the Dockerfile
has USER. A rebuild begins after the steps that the last build has run. CMD and ENTRYPOINT
are the start command: it runs in every sandbox of the template. Ctrl-C ends the build.

There is one stage (FROM), and .dockerignore applies. The user of the sandboxes' commands
is "user", in /home/user, unless the Dockerfile has USER and WORKDIR.`,
		Example: `  brig template build ./web
  brig template build ./web --name web:v2 --tag stable --start 'npm start' --ready 'curl -f localhost:3000'
  brig sandbox create --template web`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder := "."
			if len(args) > 0 {
				folder = args[0]
			}
			f.startSet = cmd.Flags().Changed("start")
			return f.run(cmd, folder)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.name, "name", "", "`NAME[:TAG]` of the template (default: the name of the folder)")
	fl.StringArrayVarP(&f.tags, "tag", "t", nil, "`tag` of the build when it is ready (default: that in the name, or default)")
	fl.StringVarP(&f.dockerfile, "dockerfile", "f", "", "Dockerfile `FILE` (default: Dockerfile in the folder)")
	fl.StringVar(&f.fromTemplate, "from-template", "", "begin with this `template` instead of the image after FROM")
	fl.StringArrayVar(&f.args, "build-arg", nil, "value of an ARG, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.StringVar(&f.start, "start", "", "start `command` instead of CMD and ENTRYPOINT; '' for none")
	fl.StringVar(&f.ready, "ready", "", "`command` that succeeds when the template is ready (default with a start command: sleep 20)")
	fl.Float64Var(&f.cpus, "cpus", 0, "CPU limit of the sandboxes, for example 0.5")
	fl.StringVar(&f.memory, "memory", "", "memory limit of the sandboxes, for example 512MiB")
	fl.BoolVar(&f.noCache, "no-cache", false, "run all steps, also those that the last build has run")
	fl.BoolVarP(&f.background, "detach", "d", false, "print the ID of the build and do not wait for its end; needs a server")
	return cmd
}

// run builds a template.
func (f *templateBuild) run(cmd *cobra.Command, folder string) error {
	b, files, err := f.convert(folder)
	if err != nil {
		return err
	}
	defer files.Close()
	for _, w := range b.Warnings {
		fmt.Fprintln(f.stderr, colorize(f.stderr, yellow, "warning:"), sanitizeText(w))
	}
	return f.useTemplates(cmd, func(ctx context.Context, svc brig.TemplateService) error {
		if _, local := svc.(localService); local && f.background {
			return brig.InvalidField("--detach", "without a server, the build would end with this command").WithHint("start brig serve, or leave --detach out")
		}
		if err := f.upload(ctx, svc, b); err != nil {
			return err
		}
		started, err := svc.BuildTemplate(ctx, b.Spec)
		if err != nil {
			return err
		}
		if f.background {
			return f.printJSONOrLine(started, started.ID)
		}
		return f.follow(ctx, svc, b.Spec.Name, started)
	})
}

// convert reads the Dockerfile, and returns the build with the folder of its files.
func (f *templateBuild) convert(folder string) (*dockerfile.Build, *dockerfile.Folder, error) {
	file := f.dockerfile
	if file == "" {
		file = filepath.Join(folder, "Dockerfile")
	}
	text, err := os.Open(file)
	if err != nil {
		return nil, nil, unreadableError("--dockerfile", file, err)
	}
	defer text.Close()
	args, err := parsePairs("--build-arg", f.args, true)
	if err != nil {
		return nil, nil, err
	}
	memory, err := parseSize("--memory", f.memory)
	if err != nil {
		return nil, nil, err
	}
	files, err := dockerfile.OpenFolder(folder, file)
	if err != nil {
		return nil, nil, unreadableError("FOLDER", folder, err)
	}
	b, err := dockerfile.Convert(text, dockerfile.Options{Files: files, Args: args})
	if err != nil {
		files.Close()
		return nil, nil, err
	}
	s := &b.Spec
	if s.Name = f.name; s.Name == "" {
		if s.Name, err = folderName(folder); err != nil {
			files.Close()
			return nil, nil, err
		}
	}
	if f.fromTemplate != "" {
		s.Image, s.Template = "", f.fromTemplate
	}
	if f.startSet {
		s.Start = f.start
	}
	s.Ready, s.Tags, s.CPUs, s.Memory, s.NoCache = f.ready, f.tags, f.cpus, memory, f.noCache
	return b, files, nil
}

// folderName returns the name of a template for a folder.
func folderName(folder string) (string, error) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	name := strings.ToLower(filepath.Base(path))
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return "", brig.InvalidField("--name", "the name of the folder, %q, cannot be that of a template", brig.Clip(name, 80)).WithHint("give --name")
	}
	return name, nil
}

// upload uploads the files that the server does not have.
func (f *templateBuild) upload(ctx context.Context, svc brig.TemplateService, b *dockerfile.Build) error {
	for _, s := range b.Spec.Steps {
		if s.Kind != brig.BuildCopy {
			continue
		}
		has, err := svc.HasTemplateFiles(ctx, s.Digest)
		if err != nil {
			return err
		}
		if !has {
			if err := f.uploadArchive(ctx, svc, s.Digest, b.Archives[s.Digest]); err != nil {
				return err
			}
		}
	}
	return nil
}

// uploadArchive uploads one archive. It is written to a temporary file first, because the server needs its
// size.
func (f *templateBuild) uploadArchive(ctx context.Context, svc brig.TemplateService, digest string, a *dockerfile.Archive) error {
	temp, err := os.CreateTemp("", "brig-template-*.tar.gz")
	if err != nil {
		return err
	}
	defer temp.Close()
	if err := os.Remove(temp.Name()); err != nil { // the open file stays until it is closed
		return err
	}
	if err := a.Write(temp); err != nil {
		return err
	}
	size, err := temp.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := temp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	report, done := f.newProgress()
	defer done()
	body := &countingReader{from: temp, total: size, report: report}
	return svc.PutTemplateFiles(ctx, digest, size, body)
}

// countingReader reports how much of an upload was read.
type countingReader struct {
	from        io.Reader
	done, total int64
	report      func(brig.Progress)
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.done += int64(n)
	c.report(brig.Progress{Step: "upload files", Done: c.done, Total: c.total})
	return n, err
}

// cancelTimeout limits how long an interrupted command waits for the end of its build.
const cancelTimeout = 10 * time.Second

// follow prints the log of a build until its end, and then how to use the template. If the user interrupts
// the command, the build ends.
func (f *templateBuild) follow(ctx context.Context, svc brig.TemplateService, name string, started *brig.TemplateBuild) error {
	b, err := svc.FollowTemplateBuild(ctx, started.Template, started.ID, 0, func(l brig.BuildLine) error {
		if l.Level == "error" { // the command's own error
			return nil
		}
		_, err := fmt.Fprintln(f.stderr, sanitizeText(l.Text))
		return err
	})
	if ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		if err := svc.CancelTemplateBuild(ctx, started.Template, started.ID); err != nil && brig.KindOf(err) != brig.FailedPrecondition {
			return err
		}
		return brig.Errorf(brig.Canceled, "the build was canceled")
	}
	if err != nil {
		return err
	}
	if fail := b.Failure; fail != nil {
		return brig.Errorf(brig.FailedPrecondition, "%s of the build failed: %s", stepName(fail.Step), fail.Message).
			WithHint("brig template logs %s %s prints the whole log", strings.Split(name, ":")[0], b.ID)
	}
	if !strings.Contains(name, ":") && len(b.Tags) > 0 && b.Tags[0] != "default" {
		name += ":" + b.Tags[0]
	}
	if err := f.printJSONOrLine(b, name); err != nil {
		return err
	}
	fmt.Fprintln(f.stderr, "create a sandbox with: brig sandbox create --template", name)
	return nil
}
