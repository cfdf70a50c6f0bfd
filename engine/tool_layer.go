package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/tool"
)

const (
	// layersDir is where a box has its packages, each layer in a folder. They
	// are root's there, and no tool can change what the next one imports.
	layersDir = "/opt/brig-tools"
	// installTime bounds the installation of a layer.
	installTime = 5 * time.Minute
	// layerTries is how often a layer is made that is gone from the shelf before
	// it is used.
	layerTries = 3
	// builderTTL is how long a sandbox lives in which packages are installed.
	builderTTL = installTime + 2*time.Minute
)

// layerPath is where a box has the n-th layer of a call.
func layerPath(n int) string { return layersDir + "/" + strconv.Itoa(n) }

// equip puts the packages of a call into a box that nobody has used yet. What
// they say why they cannot be there is the result.
func (e *Engine) equip(ctx context.Context, v *visit, x *box, j *toolJob) (*brig.ProgramError, error) {
	if len(j.layers) == 0 {
		return nil, nil
	}
	rec, err := e.Store.Get(ctx, x.tenant, string(x.id))
	if err != nil {
		return nil, err
	}
	in, rest, err := e.occupy(ctx, rec, installTime)
	if err != nil {
		return nil, err
	}
	defer rest()
	for n, l := range j.layers {
		// What one tenant's packages do while they are installed is nothing
		// that another tenant's tools may find.
		digest := l.Digest(x.tenant + "\x00" + rec.Digest)
		content, said, err := e.layer(ctx, v, l.Layer, j.builder(e), digest)
		if err != nil {
			return nil, err
		}
		if said != "" {
			return noPackages(j, l, said), nil
		}
		err = in.Unpack(ctx, layerPath(n), brig.UnpackOptions{User: "root", Sealed: true}, content.Each)
		_ = content.Close() // it was only read
		if err != nil {
			return nil, e.lost(ctx, rec, in, fmt.Errorf("unpack packages: %w", err))
		}
	}
	// Not before: a server that dies leaves no box to the next that lacks some.
	_, err = e.update(ctx, x.tenant, x.id, func(r *brig.Record) error {
		r.Spec.Labels[labelReady] = x.key
		return nil
	})
	return nil, err
}

// builder is a sandbox in which packages are installed.
type builder struct {
	brig.Spec
	image string // the digest that its image must have; empty is any
}

// builder is what packages for the call are installed in.
func (j *toolJob) builder(e *Engine) builder {
	if j.says.Template != "" {
		return builder{Spec: brig.Spec{Template: j.says.Template}}
	}
	return builder{Spec: brig.Spec{Image: e.Options.Tools.Image}}
}

// layer takes a layer from the shelf, and puts it there first if need be, by a
// builder. Who wants one that is being made waits for it. Without
// one it says why there is none.
func (e *Engine) layer(ctx context.Context, v *visit, l tool.Layer, in builder, digest string) (_ *tool.Content, said string, err error) {
	shelf := e.Options.Tools.Layers
	if shelf == nil {
		return nil, "packages are not installed here (the operator allows that with tools.packages)", nil
	}
	leave, err := e.boxes.layers.join(ctx, digest)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	for tries := 0; ; tries++ {
		content, err := shelf.Open(digest)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || tries == layerTries {
			return content, "", err
		}
		if said, err := e.makeLayer(ctx, v, l, in, digest); said != "" || err != nil {
			return nil, said, err
		}
		// Others may need its room at once.
	}
}

// makeLayer installs packages in a sandbox of their own, and puts them on the
// shelf, or says why not.
func (e *Engine) makeLayer(ctx context.Context, v *visit, l tool.Layer, in builder, digest string) (said string, err error) {
	shelf := e.Options.Tools.Layers
	in.Name, in.TTL = newName("tool-build-"), min(builderTTL, v.bounds.MaxTTL)
	m, err := e.makeToolSandbox(ctx, v, in.Spec, nil, e.Options.Tools.PackageEgress)
	if err != nil {
		return "", err
	}
	defer e.endBox(ctx, &box{id: m.rec.ID, tenant: m.rec.Tenant})
	if in.image != "" && m.rec.Digest != in.image {
		return "where packages are installed the image is another", nil
	}
	said, ok, err := e.install(ctx, m, l)
	if err != nil {
		return "", e.lost(ctx, m.rec, m.in, err)
	}
	if !ok {
		return cmp.Or(said, "it failed, and does not say why"), nil
	}
	err = shelf.Put(digest, func(on func(brig.Node, io.Reader) error) error { return m.in.Pack(ctx, tool.LayerDir, on) })
	switch {
	case errors.Is(err, tool.ErrTooLarge):
		return "they take more than " + brig.FormatBytes(shelf.Largest), nil
	case errors.Is(err, fs.ErrNotExist):
		return "nothing was installed", nil
	}
	return "", err
}

// install installs the packages of a layer, and returns what was said if it
// failed.
func (e *Engine) install(ctx context.Context, m *machine, l tool.Layer) (said string, ok bool, err error) {
	cmd := brig.Command{
		Argv: l.Install(e.Options.Tools.Index), Timeout: min(installTime, time.Until(m.rec.Expires)), Dir: workspaceDir,
		Env: map[string]string{"HOME": workspaceDir, "PIP_CONFIG_FILE": "/dev/null"},
	}
	out := newCapture(m.rec.Spec.Limits.Output)
	res, err := m.in.Exec(ctx, newExecID(), cmd, brig.IO{Stdout: out, Stderr: out})
	if err != nil && (res == nil || !res.Done) {
		return "", false, err
	}
	told := out.output()
	said = strings.ToValidUTF8(strings.TrimSpace(string(told.Head)+string(told.Tail)), "\uFFFD")
	switch {
	case res.TimedOut:
		said = fmt.Sprintf("it took longer than %v. %s", cmd.Timeout, said)
	case res.OOMKilled:
		said = "it used more memory than it may. " + said
	}
	return said, res.ExitCode == 0, nil
}

// noPackages is what is told of packages that are not there.
func noPackages(j *toolJob, l toolLayer, said string) *brig.ProgramError {
	name := j.tool.Name
	if name == "" {
		name = tool.LastFunction(j.tool.Source)
	}
	return &brig.ProgramError{
		Name: "PackageError", Message: tool.InstallError(l.Installer(), l.Packages, name, l.own, brig.Clip(said, 2000)),
		Hint: "change the requirements",
	}
}
